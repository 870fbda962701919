"""How text is made safe and laid out: documents, escaping, the terminal."""

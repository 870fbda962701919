"""What each command-line verb does; parsing is in cli.py."""

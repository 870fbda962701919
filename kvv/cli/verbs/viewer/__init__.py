"""`kvv view`: runs in a browser. Reads run folders, writes nothing but an export."""

"""What `kvv identity` asks, and how."""

"""What people read, made from records alone."""

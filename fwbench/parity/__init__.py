"""Proof that the frameworks compute the same thing, and what a record says of it."""

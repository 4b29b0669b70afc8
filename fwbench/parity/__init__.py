"""Proofs that the frameworks compute the same thing, and the statement of a record on them."""

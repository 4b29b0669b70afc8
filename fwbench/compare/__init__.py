"""Comparing: whether a difference between two sides is one, and what it means for CI."""

"""Finds the place where two networks part: records the calls of their modules and names the first that differs."""

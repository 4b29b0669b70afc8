"""Lets pytest put this folder on the path, so that these tests need no installation."""

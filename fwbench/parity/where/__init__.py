"""The place where two networks part: the calls of their modules are recorded, and the first that differs is named."""

"""Where two networks part that do not compute the same: their modules' calls, and the first of them that differs."""

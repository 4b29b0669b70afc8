"""pytest's side of the process boundary."""

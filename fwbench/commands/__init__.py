"""The `fwbench` command: one module a command."""

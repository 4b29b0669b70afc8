"""Faults injected from outside. Each test adds the rows of docs/evidence/faults.md that it has shown."""

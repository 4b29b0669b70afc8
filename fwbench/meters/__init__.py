"""What is read from a running program. A meter that has nothing to read says why."""

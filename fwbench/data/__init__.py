"""Framework-neutral NumPy batches."""

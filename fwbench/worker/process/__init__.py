"""The measured side of the process boundary: imported and run in processes that pytest's side starts."""

"""One workload in several processes: `client` is on pytest's side; the ranks are processes that a launcher starts."""

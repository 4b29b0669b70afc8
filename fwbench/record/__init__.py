"""What travels and what stays: workloads, measurements, metrics, lanes, the journal, and how files of them are read."""

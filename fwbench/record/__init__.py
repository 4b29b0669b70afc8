"""Data that processes exchange and files keep: workloads, measurements, metrics, lanes, journals and their readers."""

"""pytest's side of processes that take turns; `fwbench.worker.process.player` is the measured one."""

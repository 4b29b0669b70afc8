"""The metrics by name: unit, direction and meaning. A meter makes them; whoever reads or lists them looks here.

docs/method.md says how each is made and when not to trust it.
"""

from dataclasses import dataclass

from fwbench.record.measurement import Direction


@dataclass(frozen=True)
class Kind:
    """What a metric is.

    Attributes:
        unit: SI, as stored; `1` for a share or a loss.
        direction: which way is better.
        meaning: a phrase for readers.
    """

    unit: str
    direction: Direction
    meaning: str


METRICS = {
    "throughput": Kind("1/s", "higher", "samples per second, calls enqueued back to back; in fit, of a steady epoch"),
    "latency_p50": Kind("s", "lower", "half of the synchronised calls take at most this"),
    "latency_p95": Kind("s", "lower", "95 % of the synchronised calls take at most this"),
    "latency_p99": Kind("s", "lower", "99 % of the synchronised calls take at most this"),
    "trace_time": Kind("s", "lower", "from Python to the compiler's input"),
    "compile_time": Kind("s", "lower", "from the compiler's input to machine code, caches cold"),
    "first_call_time": Kind("s", "lower", "the first call after compiling"),
    "device_initial_memory": Kind("B", "lower", "held of the device's allocator before the step"),
    "device_peak_memory": Kind("B", "lower", "peak of the device's allocator"),
    "program_memory": Kind("B", "lower", "what the compiler says the program needs"),
    "process_device_memory": Kind("B", "lower", "what the driver counts for the process, context and caches included"),
    "host_initial_memory": Kind("B", "lower", "resident memory of the process before the step"),
    "host_peak_memory": Kind("B", "lower", "peak resident memory of the process"),
    "energy_per_sample": Kind("J", "lower", "energy of a sample, idle share included"),
    "energy_per_sample_net": Kind("J", "lower", "energy of a sample, idle share taken off"),
    "power_idle": Kind("W", "lower", "power with the program loaded and no calls"),
    "power_load": Kind("W", "lower", "power while calls run"),
    "first_epoch_time": Kind("s", "lower", "the first epoch, compilation included"),
    "epoch_time": Kind("s", "lower", "a steady epoch: the median of those after the first"),
    "epoch_wait_time": Kind("s", "lower", "of a steady epoch, waiting for data"),
    "epoch_compute_time": Kind("s", "lower", "of a steady epoch, training steps"),
    "epoch_evaluation_time": Kind("s", "lower", "of a steady epoch, validation"),
    "epoch_energy": Kind("J", "lower", "energy of a steady epoch, the mean"),
    "train_loss": Kind("1", "lower", "mean over the last epoch's steps, each before its update"),
    "train_top1": Kind("1", "higher", "mean over the last epoch's steps, each before its update"),
    "validation_loss": Kind("1", "lower", "on the whole validation split after the last epoch"),
    "validation_top1": Kind("1", "higher", "on the whole validation split after the last epoch"),
    "validation_top5": Kind("1", "higher", "on the whole validation split after the last epoch"),
    "test_loss": Kind("1", "lower", "on the whole test split after the last epoch"),
    "test_top1": Kind("1", "higher", "on the whole test split after the last epoch"),
    "test_top5": Kind("1", "higher", "on the whole test split after the last epoch"),
    "other_load": Kind("1", "lower", "share of the CPUs that other processes used meanwhile"),
}

"""The metrics by name: unit, direction and meaning, stated here and nowhere else.

A meter gives a value under a name of this table. All code that writes, reads, compares or lists metrics uses the table.

docs/method.md says how each metric is measured and when not to trust it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Direction = Literal["lower", "higher"]


@dataclass(frozen=True)
class Description:
    """A metric's unit, direction and meaning.

    Attributes:
        unit: SI, as stored; `1` for a share or a loss.
        direction: which way is better.
        meaning: a phrase for readers.
    """

    unit: str
    direction: Direction
    meaning: str


# For each SI unit, the units in which people write and read its quantities, each with its size in the SI unit.
SCALES: Mapping[str, Mapping[str, float]] = {
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    "B": {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "J": {"J": 1.0, "mJ": 1e-3, "kJ": 1e3},
    "1/s": {"1/s": 1.0},
}

METRICS = {
    "throughput": Description(
        "1/s", "higher", "samples per second, calls enqueued back to back; in fit, of a steady epoch"
    ),
    "latency_p50": Description("s", "lower", "half of the synchronised calls take at most this"),
    "latency_p95": Description("s", "lower", "95 % of the synchronised calls take at most this"),
    "latency_p99": Description("s", "lower", "99 % of the synchronised calls take at most this"),
    "time_to_first_token": Description("s", "lower", "half of the synchronised calls with a prompt take at most this"),
    "time_per_output_token": Description(
        "s", "lower", "half of the synchronised calls with one further step of each sequence take at most this"
    ),
    "tokens_per_second": Description("1/s", "higher", "steps of all sequences per second, calls back to back"),
    "energy_per_token": Description("J", "lower", "energy of a step of a sequence, idle share included"),
    "state_memory": Description("B", "lower", "the state, such as a cache, that a call takes"),
    "latency_drift": Description(
        "1", "lower", "change of the median latency from the first third of the calls to the last"
    ),
    "device_time": Description("s", "lower", "of a call, in which the GPU computes or copies for it"),
    "cpu_time": Description("s", "lower", "mean CPU time of a call in a duet, of all threads"),
    "trace_time": Description("s", "lower", "from Python to the compiler's input"),
    "compile_time": Description("s", "lower", "from the compiler's input to machine code, caches cold"),
    "exported_size": Description("B", "lower", "files that hold the exported network, of a lane that exports"),
    "first_call_time": Description("s", "lower", "the first call after compiling"),
    "warm_start_time": Description(
        "s", "lower", "from the start of tracing to the end of the first call, compilers' caches filled; in a duet"
    ),
    "time_to_steady": Description("s", "lower", "from the start of compiling to the end of the first steady call"),
    "device_initial_memory": Description("B", "lower", "held of the device's allocator before the step"),
    "device_peak_memory": Description("B", "lower", "peak of the device's allocator"),
    "program_memory": Description("B", "lower", "what the compiler says the program needs"),
    "process_device_memory": Description(
        "B", "lower", "what the driver counts for the process, context and caches included"
    ),
    "host_initial_memory": Description("B", "lower", "resident memory of the process before the step"),
    "host_peak_memory": Description("B", "lower", "peak resident memory of the process"),
    "memory_growth": Description("B", "lower", "by which memory grows with each call, long after the first ones"),
    "energy_per_sample": Description("J", "lower", "energy of a sample, idle share included"),
    "energy_per_sample_net": Description("J", "lower", "energy of a sample, idle share taken off"),
    "power_idle": Description("W", "lower", "power with the program loaded and no calls"),
    "power_load": Description("W", "lower", "power while calls run"),
    "energy_period": Description("s", "lower", "how often the energy counter moves, found by polling it"),
    "first_epoch_time": Description("s", "lower", "the first epoch, compilation included"),
    "epoch_time": Description("s", "lower", "a steady epoch: the median of those after the first"),
    "epoch_wait_time": Description("s", "lower", "of a steady epoch, waiting for data"),
    "epoch_compute_time": Description("s", "lower", "of a steady epoch, training steps"),
    "epoch_evaluation_time": Description("s", "lower", "of a steady epoch, validation"),
    "epoch_energy": Description("J", "lower", "energy of a steady epoch, the mean"),
    "train_loss": Description("1", "lower", "mean over the last epoch's steps, each before its update"),
    "train_top1": Description("1", "higher", "mean over the last epoch's steps, each before its update"),
    "validation_loss": Description("1", "lower", "on the whole validation split after the last epoch"),
    "validation_top1": Description("1", "higher", "on the whole validation split after the last epoch"),
    "validation_top5": Description("1", "higher", "on the whole validation split after the last epoch"),
    "test_loss": Description("1", "lower", "on the whole test split after the last epoch"),
    "test_top1": Description("1", "higher", "on the whole test split after the last epoch"),
    "test_top5": Description("1", "higher", "on the whole test split after the last epoch"),
    "other_load": Description("1", "lower", "share of the CPUs that other processes used meanwhile"),
    "matrix_product_rate": Description(
        "FLOP/s", "higher", "of a lane's fastest product of two large matrices; of its first benchmark in a precision"
    ),
    "compute_ceiling": Description("FLOP/s", "higher", "the same, or of a dense convolution where that is faster"),
    "memory_bandwidth": Description(
        "B/s", "higher", "read and written in a copy that no cache holds; of a lane's first benchmark in a precision"
    ),
    "model_flops": Description(
        "FLOP", "lower", "a call's floating-point operations, as the model asks for them: the same in every lane"
    ),
    "join_time": Description(
        "s", "lower", "of several ranks, from the start of their processes until the last one has joined"
    ),
    "rank_spread": Description(
        "1", "lower", "of several ranks, by how much the slowest one's median latency is above the fastest one's"
    ),
    "communication_time": Description("s", "lower", "of a step over several devices, in which they exchange gradients"),
    "output_error": Description(
        "1", "lower", "distance of the output from that of float64 at the same weights and inputs, over its length"
    ),
    "loss_error": Description(
        "1", "lower", "distance of the first step's loss from that of float64 at the same weights and batch, over it"
    ),
    "gradient_error": Description(
        "1", "lower", "distance of the first step's gradients from those of float64, over the length of these"
    ),
    "bare_loop_ratio": Description("1", "lower", "latency of a fixed step, over that of the same step in a bare loop"),
}

# The metric of each quantity's error against float64, in runs that measure a workload in a lower precision than fp32.
ERRORS = {"output": "output_error", "loss": "loss_error", "gradients": "gradient_error"}

# The metrics of the machine, which a lane's first benchmark in a precision measures.
CEILINGS = ("matrix_product_rate", "compute_ceiling", "memory_bandwidth")

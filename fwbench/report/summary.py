"""The terminal table of a run: one row a workload, frameworks of one model side by side."""

import statistics
from collections.abc import Callable, Sequence

from fwbench.lanes import LANES
from fwbench.measurement import Measurement
from fwbench.report import units

_HEADER = (
    "model",
    "mode",
    "batch",
    "lane",
    "throughput/s",
    "p50",
    "p95",
    "p99",
    "memory",
    "J/sample",
    "compile",
    "speed-up",
)
# Share of the CPUs below which the background of an idle machine stays.
_OTHER_LOAD = 0.05
_LEFT = 4  # columns of text; numbers after them are set flush right


def table(measurements: Sequence[Measurement]) -> list[str]:
    """The lines of the table.

    Memory is the device allocator's peak on a GPU and the process's peak resident memory on a CPU; compile is tracing
    and compiling together; speed-up is throughput relative to the baseline lane (eager PyTorch) on the same workload.
    """
    baselines = {_key(m): m.value("throughput") for m in measurements if LANES[m.workload.framework].baseline}
    rows = [_HEADER, *(_row(m, baselines.get(_key(m))) for m in measurements)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = []
    previous: Measurement | None = None
    for row, measurement in zip(rows, (None, *measurements), strict=True):
        if measurement and previous and measurement.workload.model != previous.workload.model:
            lines.append("")
        lines.append(
            "  ".join(
                cell.ljust(width) if column < _LEFT else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
        )
        previous = measurement
    return lines


def notes(measurements: Sequence[Measurement]) -> list[str]:
    """What a reader of the table must know: why cells are empty, and samples whose mean lies beyond the p95."""
    lines = []
    reasons: dict[str, str] = {}
    measured = [m for m in measurements if not m.failure]
    for m in measured:
        energy = m.metrics.get("energy_per_sample")
        if energy and energy.reason:
            reasons.setdefault("energy", energy.reason)
        p95 = m.value("latency_p95")
        if p95 is not None and sum(m.samples) / len(m.samples) > p95:
            lines.append(
                f"{m.workload.id}: the mean latency lies above p95; a few calls were very slow. "
                "Look for other load on the machine and measure again."
            )
    lines.extend(f"no {what}: {reason}" for what, reason in reasons.items())
    loads = {m.workload.id: load for m in measured if (load := m.value("other_load") or 0.0) > _OTHER_LOAD}
    if loads:
        worst = max(loads, key=lambda name: loads[name])
        lines.append(
            f"other processes used the CPUs while {len(loads)} of {len(measured)} were measured (most: "
            f"{loads[worst]:.0%}, {worst}); those numbers are not the machine's. Stop the other load, measure again."
        )
    starts = [m.start_s for m in measured if m.start_s is not None]
    overheads = [m.overhead_s for m in measured if m.overhead_s is not None]
    if starts and overheads:
        lines.append(
            f"harness, median of {len(overheads)}: a worker starts in {units.seconds(statistics.median(starts))}, "
            f"and {units.seconds(statistics.median(overheads))} a benchmark go to anything but the stages shown"
        )
    return lines


def _key(measurement: Measurement) -> tuple[object, ...]:
    workload = measurement.workload
    return workload.model, workload.mode, workload.batch_size, workload.precision, workload.device


def _row(measurement: Measurement, baseline: float | None) -> tuple[str, ...]:
    workload = measurement.workload
    lane = workload.framework if workload.precision == "fp32" else f"{workload.framework} {workload.precision}"
    head = (workload.model, workload.mode, str(workload.batch_size), lane)
    if measurement.failure:
        return (*head, measurement.failure.kind, *[""] * (len(_HEADER) - len(head) - 1))
    throughput = measurement.value("throughput")
    memory = measurement.value("device_peak_memory" if workload.device == "gpu" else "host_peak_memory")
    energy = measurement.value("energy_per_sample")
    trace, compiled = measurement.value("trace_time"), measurement.value("compile_time")
    return (
        *head,
        _cell(throughput, units.rate),
        *(_cell(measurement.value(f"latency_p{p}"), units.seconds, "n/a") for p in (50, 95, 99)),
        _cell(memory, units.size),
        _cell(energy, units.joules),
        _cell(compiled if trace is None or compiled is None else trace + compiled, units.seconds),
        _cell(throughput / baseline if throughput and baseline else None, units.ratio, ""),
    )


def _cell(value: float | None, unit: Callable[[float], str], absent: str = "-") -> str:
    return absent if value is None else unit(value)

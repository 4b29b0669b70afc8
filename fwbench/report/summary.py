"""The terminal tables of a run: calls, then epochs; one row a workload, frameworks of one model side by side."""

import dataclasses
import statistics
from collections.abc import Callable, Sequence

from fwbench.lanes import LANES
from fwbench.measurement import Measurement
from fwbench.report import units
from fwbench.workload import Workload

Row = tuple[str, ...]

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
_FIT_HEADER = (
    "model",
    "data",
    "batch",
    "lane",
    "epochs",
    "first epoch",
    "epoch",
    "waiting",
    "evaluating",
    "throughput/s",
    "memory",
    "train loss",
    "val. loss",
    "val. top-1",
    "test top-1",
)
# Share of the CPUs below which the background of an idle machine stays.
_OTHER_LOAD = 0.05
_LEFT = 4  # columns of text; numbers after them are set flush right


def table(measurements: Sequence[Measurement]) -> list[str]:
    """The lines of the table of calls: inference and single training steps.

    Memory is the device allocator's peak on a GPU and the process's peak resident memory on a CPU; compile is tracing
    and compiling together; speed-up is throughput relative to the baseline lane (eager PyTorch) on the same workload.
    """
    calls = [m for m in measurements if m.workload.mode != "fit"]
    baselines = {_key(m): m.value("throughput") for m in calls if LANES[m.workload.framework].baseline}
    return _lines(_HEADER, calls, [_row(m, baselines.get(_key(m))) for m in calls])


def epochs(measurements: Sequence[Measurement]) -> list[str]:
    """The lines of the table of fits.

    An epoch is the median of those after the first, which pays for compilation; waiting for data and evaluating are
    shares of it; losses and accuracies are the last epoch's. Workloads that differ in their seed alone share a row:
    times are medians over seeds, losses and accuracies means, with the standard deviation where there are several.
    """
    seeds: dict[Workload, list[Measurement]] = {}
    for m in measurements:
        if m.workload.mode == "fit":
            seeds.setdefault(dataclasses.replace(m.workload, seed=0), []).append(m)
    return _lines(_FIT_HEADER, [of_row[0] for of_row in seeds.values()], [_fit_row(m) for m in seeds.values()])


def _lines(header: Row, measurements: Sequence[Measurement], body: Sequence[Row]) -> list[str]:
    if not body:
        return []
    rows = [header, *body]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
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
    lines.extend(
        f"{m.workload.id}: recompiled while it was measured ({m.program.recompilations}x); a shape, a type or a "
        "value that it is compiled for changes from call to call"
        for m in measured
        if m.program and m.program.recompilations
    )
    starts = [m.start_s for m in measured if m.start_s is not None]
    overheads = [m.overhead_s for m in measured if m.overhead_s is not None]
    if starts and overheads:
        lines.append(
            f"harness, median of {len(overheads)}: a worker starts in {units.seconds(statistics.median(starts))}, "
            f"and {units.seconds(statistics.median(overheads))} a benchmark go to anything but the stages shown"
        )
    return lines


def _fit_row(seeds: Sequence[Measurement]) -> Row:
    workload = seeds[0].workload
    head = (workload.model, workload.data, str(workload.batch_size), _lane(workload))
    failed = [m.failure.kind for m in seeds if m.failure]
    if failed:
        return (*head, failed[0], *[""] * (len(_FIT_HEADER) - len(head) - 1))

    def values(metric: str) -> list[float]:
        return [value for m in seeds if (value := m.value(metric)) is not None]

    def time(metric: str) -> float | None:
        return statistics.median(values(metric)) if values(metric) else None

    def share(metric: str) -> str:
        part, whole = time(metric), time("epoch_time")
        return "-" if part is None or not whole else f"{part / whole:.0%}"

    def score(metric: str) -> str:
        found = values(metric)
        if not found:
            return "-"
        mean = f"{statistics.mean(found):.3f}"
        return f"{mean}±{statistics.stdev(found):.3f}" if len(found) > 1 else mean

    memory = "device_peak_memory" if workload.device == "gpu" else "host_peak_memory"
    return (
        *head,
        str(workload.epochs) if len(seeds) == 1 else f"{len(seeds)}x{workload.epochs}",
        _cell(time("first_epoch_time"), units.seconds),
        _cell(time("epoch_time"), units.seconds),
        share("epoch_wait_time"),
        share("epoch_evaluation_time"),
        _cell(time("throughput"), units.rate),
        _cell(time(memory), units.size),
        *(score(metric) for metric in ("train_loss", "validation_loss", "validation_top1", "test_top1")),
    )


def _lane(workload: Workload) -> str:
    """The lane, and what is not the default."""
    options = (
        workload.precision if workload.precision != "fp32" else "",
        workload.optimizer if workload.optimizer != "adam" else "",
        f"a{workload.accumulate}" if workload.accumulate > 1 else "",
        "remat" if workload.remat else "",
        f"({workload.variant})" if workload.variant else "",
    )
    return " ".join((workload.framework, *filter(None, options)))


def _key(measurement: Measurement) -> Workload:
    workload = measurement.workload
    return dataclasses.replace(workload, framework="")


def _row(measurement: Measurement, baseline: float | None) -> Row:
    workload = measurement.workload
    head = (workload.model, workload.mode, str(workload.batch_size), _lane(workload))
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

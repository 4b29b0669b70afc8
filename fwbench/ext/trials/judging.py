"""Judges the measurements of `fwbench doctor --check`: figures in, findings out, nothing is run."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from fwbench import text, units
from fwbench.commands.doctor.findings import QUIET, Finding
from fwbench.compare.criteria import thresholds
from fwbench.compare.pair import Comparison
from fwbench.compare.statistics import THRESHOLD
from fwbench.compare.weighing import BY_CHANCE
from fwbench.machine.disturbances import DRIFT, GAP, LOAD, disturbances, loaded
from fwbench.meters.energy import too_short
from fwbench.record.measurement import Measurement, Metric
from fwbench.record.quantiles import quantile
from fwbench.record.workload import Workload
from fwbench.report import limits
from fwbench.suite.profiles import PROFILES

# The share that the clock and the harness may add to a round: half of the smallest change that a gate counts.
NEGLIGIBLE = THRESHOLD / 2
# The change of latency that a gate against a saved record counts.
_COUNTED = thresholds("saved")["latency"].share


def arithmetic(lane: str, by_precision: Mapping[str, Measurement]) -> Finding:
    """The arithmetic that probes found in each precision: in `fp32` first, and in those that the device has."""
    proved, lacking = [], []
    for name, m in by_precision.items():
        if m.failure is None:
            error = max(float(of["error"]) for of in m.parity["probe"].values())
            proved.append(f"{name} (relative error {error:.1e})")
        elif m.failure.kind == "unavailable" and name != "fp32":
            lacking.append(name)
        else:
            # A lane may be unable to use the GPU where another one's CUDA is installed: the others are measured.
            unusable = m.failure.kind == "unavailable"
            return Finding(f"{lane} arithmetic", f"{name}: {m.failure.message}", _after(lane, m), bad=not unusable)
    absent = f"; this device has no {' or '.join(lacking)}" if lacking else ""
    return Finding(f"{lane} arithmetic", f"{', '.join(proved)}, as asked for{absent}")


def agreement(lane: str, processes: Sequence[Measurement]) -> Finding:
    """The latencies that fresh processes find.

    A gate against a saved record counts no difference below its threshold, and the report calls no difference below
    `BY_CHANCE` likely. If no two processes are nearer to each other than that, unchanged code would look changed, by
    the machine's fault or by other load.
    """
    subject = f"{lane} processes"
    for process in processes:
        if process.failure:
            found = f"one of several fresh ones failed: {process.failure.message}"
            return Finding(subject, found, _after(lane, process), bad=True)
    medians = sorted(quantile(process.samples, 50) for process in processes)
    apart = medians[-1] / medians[0]
    found = f"{' and '.join(map(units.seconds, medians))}, {text.change(apart, '{:.1%}'.format)} apart"
    if apart <= 1 + _COUNTED:
        return Finding(subject, found)
    step = "trust several processes rather than one: --fwbench-set=processes=5, or compare by --fwbench-against"
    if any(map(loaded, processes)):
        load = max(process.value("other_load") or 0.0 for process in processes)
        found, step = f"{found}, while others used {load:.1%} of the CPUs", QUIET
    bad = min(larger / smaller for smaller, larger in pairwise(medians)) > BY_CHANCE
    return Finding(subject, f"{found}{': the same program would look like another' if bad else ''}", step, bad)


def graphs(lane: str, outcome: str) -> Finding:
    """The outcome of a lane's CUDA graphs, as the record's setting `cudagraphs` states it."""
    step = "its kernels are launched one by one; compile the network in a script with TORCH_LOGS=cudagraphs to see why"
    replayed = "replayed" in outcome and "skipped" not in outcome
    return Finding(f"{lane} CUDA graphs", outcome, "" if replayed else step)


def unchanged_duet(lane: str, comparison: Comparison[Workload]) -> Finding:
    """A duet of a program with itself, which must call it unchanged."""
    subject, kind = f"{lane} duet", comparison.kind
    if comparison.fault:
        step = f"--fwbench-against cannot be used with {lane} here; compare saved runs: `fwbench compare`"
        timed_out = comparison.fault.failure.kind == "timed_out"
        return Finding(subject, f"{kind}: {comparison.note}", QUIET if timed_out else step, bad=True)
    # The verdicts that decided the comparison's kind.
    grave = {metric: verdict for metric, verdict in comparison.verdicts.items() if verdict.kind == kind}
    changes = ", ".join(f"{metric} {text.change(verdict.ratio)}" for metric, verdict in grave.items())
    found = f"the same program twice is {kind}: {changes}, of {max(each.pairs for each in grave.values())} pairs"
    step = "do not gate on this machine: `fwbench selftest` tells how often its verdicts are false"
    return Finding(subject, found, {"unchanged": "", "inconclusive": QUIET}.get(kind, step), kind != "inconclusive")


def clock(resolution: float, empty_round: float, shortest: float) -> Finding:
    """The clock's step and a round of the harness's own, beside the shortest latency; all in seconds."""
    added = max(resolution, empty_round)
    found = (
        f"steps of {units.seconds(resolution)}, an empty round takes {units.seconds(empty_round)}: "
        f"{added / shortest:.2%} of the shortest latency here, {units.seconds(shortest)}"
    )
    least = units.seconds(added / NEGLIGIBLE)
    step = f"latencies below {least} are off by more than {NEGLIGIBLE:.0%}: choose larger batches"
    return Finding("clock", found, step if added > NEGLIGIBLE * shortest else "", bad=added > _COUNTED * shortest)


def energy_counter(name: str, moves: Sequence[tuple[float, float]], fault: str = "") -> Finding:
    """An energy counter, beside the shortest window that it is read over.

    Args:
        moves: the times in seconds at which it was seen to move, and its joules then; with nothing of ours running.
        fault: the reason why its readings cannot be believed, as one of them has shown; empty: none has.
    """
    if fault:
        return Finding("energy", fault, "energy stays absent from the records, with this reason")
    if len(moves) < 2:
        step = "read no energy here: update the driver, or use a GPU of your own instead of a share of one"
        return Finding("energy", f"{name}: moved no more than once within seconds", step, bad=True)
    (begun, least), (ended, most) = moves[0], moves[-1]
    period = statistics.median(later - earlier for (earlier, _), (later, _) in pairwise(moves))
    window = min(protocol.energy_time for protocol in PROFILES.values())
    reason = too_short(window, Metric(period, name))
    found = (
        f"{name}: moves every {units.seconds(period)}, {window / period:.0f} times in a window of {window:g} s; "
        f"{(most - least) / (ended - begun):.1f} W idle{reason and f'; {reason}'}"
    )
    return Finding("energy", found, reason and "records of profile `quick` have no energy")


def matrix_products(measured: Sequence[Measurement]) -> Iterator[Finding]:
    """Lanes that multiply matrices far more slowly than another one, of those that were timed undisturbed."""
    for precision, (rates, slow) in limits.matrix_products(measured).items():
        step = (
            f"no documented setting mends it: mind it where {' or '.join(slow)} is compared in networks of large ones"
        )
        subject = "matrix products" if precision == "fp32" else f"matrix products in {precision}"
        yield Finding(subject, rates, step if slow else "")


def ceilings(measured: Sequence[Measurement]) -> Iterator[Finding]:
    """The highest ceiling of all lanes in each precision, and of memory; a report compares every row with these."""
    highest, rates = limits.ceilings(measured), []
    for precision, m in highest.compute.items():
        operation = m.metrics["compute_ceiling"].operation
        rate = units.flop_rate(highest.reached(precision) or 0.0)
        rates.append(f"{precision} {rate} ({m.workload.lane}: {operation})")
    if highest.bandwidth:
        rates.append(f"memory {units.byte_rate(highest.bandwidth)}")
    if rates:
        yield Finding("ceilings", ", ".join(rates), QUIET if highest.disturbed else "")


def disturbed(measured: Sequence[Measurement]) -> Finding:
    """The disturbances, except other load, as rows of a report would name them."""
    every = [(m.workload.lane, each) for m in measured for each in disturbances([m]) if each.cause != LOAD]
    causes = {each.cause: f"{each.cause.happened} ({each.detail}, {lane})" for lane, each in reversed(every)}
    found = f"{len(every) or 'none'} in {len(measured)} measurements{': ' if every else ''}{'; '.join(causes.values())}"
    # Calls that drift and a process that stands still are accidents of single measurements; the others stay.
    bad = not causes.keys() <= {DRIFT, GAP}
    return Finding("disturbances", found, ". ".join(cause.next_step for cause in causes), bad)


def _after(lane: str, measurement: Measurement) -> str:
    """The next step after a failure."""
    assert measurement.failure is not None
    if measurement.failure.kind == "unavailable":
        return f"correct that, or leave {lane} out: --fwbench-lanes names the lanes that are measured"
    if measurement.failure.stage == "probe":
        return "its numbers would be of another arithmetic: look for variables that override it, as `env` shows them"
    model = measurement.workload.model
    return f"all of it: `pytest --pyargs fwbench.suite.benchmarks --benchmark-only -k {lane}-{model}`"

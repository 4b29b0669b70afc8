"""What to think of what `fwbench doctor --check` has measured: figures in, findings out, nothing is run."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from fwbench.commands.doctor.advice import Advice, Level
from fwbench.compare.criteria import CRITERIA
from fwbench.compare.pair import Comparison
from fwbench.compare.statistics import THRESHOLD
from fwbench.machine.disturbances import LOAD, disturbances, loaded
from fwbench.meters.energy import too_short
from fwbench.record.measurement import Measurement, Metric
from fwbench.record.quantiles import quantile
from fwbench.record.workload import Workload
from fwbench.report import limits, units
from fwbench.report.weighing import BY_CHANCE
from fwbench.suite.profiles import PROFILES

# What the clock and the harness may add to a round: half of the smallest change that a gate counts.
NEGLIGIBLE = THRESHOLD / 2

_QUIET = "end what else runs, `top` names it, and check again"


def arithmetic(lane: str, by_precision: Mapping[str, Measurement]) -> Advice:
    """Whether a lane computes in the arithmetic that it is asked for.

    Args:
        by_precision: `fp32` first. The others may be unavailable: not every device has them. Nor can
            every lane use the GPU, as where another one's CUDA is installed: the others are measured.
    """
    subject = f"{lane} arithmetic"
    lacking = []
    for name, measurement in by_precision.items():
        if failure := measurement.failure:
            if failure.kind != "unavailable":
                return Advice(subject, "bad", f"{name}: {failure.message}", _after(lane, measurement))
            if name == "fp32":
                return Advice(subject, "better", failure.message, _after(lane, measurement))
            lacking.append(name)
    proved = [
        f"{name} (relative error {_error(measurement):.1e})"
        for name, measurement in by_precision.items()
        if name not in lacking
    ]
    absent = f"; this device has no {' or '.join(lacking)}" if lacking else ""
    return Advice(subject, "good", f"{', '.join(proved)}, as asked for{absent}")


def measurable(lanes: Collection[str]) -> list[Advice]:
    """Nothing where any of the lanes that are installed could be measured."""
    if lanes:
        return []
    step = "correct what is said of one of them"
    return [Advice("lanes", "bad", "none that is installed here can be measured", step)]


def agreement(lane: str, processes: Sequence[Measurement]) -> Advice:
    """Whether fresh processes find the same latency: two, and where these differ by more than is usual a third.

    A gate against a saved record counts no difference below its threshold, so one up to there does no harm. The report
    calls no difference below `BY_CHANCE` likely, so where no two processes are nearer to each other, unchanged
    code would look faster or slower. Where other processes took the CPUs, the machine cannot be told from them, and
    nothing is called bad.
    """
    subject = f"{lane} processes"
    for process in processes:
        if process.failure:
            return Advice(
                subject, "bad", f"one of several fresh ones failed: {process.failure.message}", _after(lane, process)
            )
    medians = sorted(quantile(process.samples, 50) for process in processes)
    apart = medians[-1] / medians[0]
    nearest = min(larger / smaller for smaller, larger in pairwise(medians))
    saved = CRITERIA["latency"].saved
    assert saved is not None
    sentence = f"{' and '.join(map(units.seconds, medians))}, {apart - 1:.1%} apart"
    if apart <= 1 + saved.share:
        return Advice(subject, "good", sentence)
    if any(map(loaded, processes)):
        load = max(process.value("other_load") or 0.0 for process in processes)
        return Advice(subject, "better", f"{sentence}, while others used {load:.1%} of the CPUs", _QUIET)
    if nearest <= BY_CHANCE:
        step = "trust several processes rather than one: --fwbench-set=processes=5, or compare by --fwbench-against"
        return Advice(subject, "better", sentence, step)
    step = "no single run can be trusted here: use another machine, or --fwbench-set=processes=5 and --fwbench-against"
    return Advice(subject, "bad", f"{sentence}: the same program would look like another", step)


def graphs(lane: str, outcome: str) -> Advice:
    """Whether a lane that asks for CUDA graphs replays them.

    Args:
        outcome: what the record's setting `cudagraphs` says.
    """
    subject = f"{lane} CUDA graphs"
    if "replayed" in outcome and "skipped" not in outcome:
        return Advice(subject, "good", outcome)
    step = "its kernels are launched one by one; compile the network in a script with TORCH_LOGS=cudagraphs to see why"
    return Advice(subject, "better", outcome, step)


def unchanged_duet(lane: str, comparison: Comparison[Workload]) -> Advice:
    """Whether a duet of a program with itself calls it unchanged, as it must."""
    subject = f"{lane} duet"
    if comparison.fault:
        if comparison.fault.failure.kind == "timed_out":
            return Advice(subject, "better", comparison.note, _QUIET)
        step = f"--fwbench-against cannot be used with {lane} here; compare saved runs: `fwbench compare`"
        return Advice(subject, "bad", f"{comparison.kind}: {comparison.note}", step)
    # Those that made it what it is.
    grave = {metric: verdict for metric, verdict in comparison.verdicts.items() if verdict.kind == comparison.kind}
    changes = ", ".join(f"{metric} {verdict.ratio - 1:+.1%}" for metric, verdict in grave.items())
    pairs = max(verdict.pairs for verdict in grave.values())
    sentence = f"the same program twice is {comparison.kind}: {changes}, of {pairs} pairs"
    if comparison.kind == "unchanged":
        return Advice(subject, "good", sentence)
    if comparison.kind == "inconclusive":
        return Advice(subject, "better", sentence, _QUIET)
    step = "do not gate on this machine: `fwbench selftest` tells how often its verdicts are false"
    return Advice(subject, "bad", sentence, step)


def clock(resolution: float, empty_round: float, shortest: float) -> Advice:
    """Whether the clock, and what the harness does around a call, are too small to count.

    Args:
        resolution: the smallest step of the clock, in seconds.
        empty_round: latency that the harness reports of a call that does nothing, in seconds: what it adds to others.
        shortest: latency of the fastest call that was measured, in seconds.
    """
    share = max(resolution, empty_round) / shortest
    sentence = (
        f"steps of {units.seconds(resolution)}, an empty round takes {units.seconds(empty_round)}: "
        f"{share:.2%} of the shortest latency here, {units.seconds(shortest)}"
    )
    if share <= NEGLIGIBLE:
        return Advice("clock", "good", sentence)
    level: Level = "better" if share < 1 else "bad"
    least = max(resolution, empty_round) / NEGLIGIBLE
    return Advice("clock", level, sentence, f"trust no latency below {units.seconds(least)}: choose larger batches")


def energy_counter(name: str, changes: Sequence[tuple[float, float]], fault: str = "") -> Advice:
    """Whether an energy counter moves, and often enough for the shortest window that it is read over.

    Args:
        name: of the counter.
        changes: when it was seen to have moved, in seconds, and where it stood then, in joules; with nothing of ours
            running.
        fault: why its readings cannot be believed, as one of them has shown.
    """
    if fault:
        return Advice("energy", "better", fault, "energy stays absent from the records, with this reason")
    if len(changes) < 2:
        step = "read no energy here: update the driver, or use a GPU of your own instead of a share of one"
        return Advice("energy", "bad", f"{name}: moved no more than once within seconds", step)
    (begun, least), (ended, most) = changes[0], changes[-1]
    period = statistics.median(later - earlier for (earlier, _), (later, _) in pairwise(changes))
    window = min(protocol.energy_time for protocol in PROFILES.values())
    sentence = (
        f"{name}: moves every {units.seconds(period)}, {window / period:.0f} times in a window of {window:g} s; "
        f"{(most - least) / (ended - begun):.1f} W idle"
    )
    if not (reason := too_short(window, Metric(period, name))):
        return Advice("energy", "good", sentence)
    return Advice("energy", "better", f"{sentence}; {reason}", "records of profile `quick` have no energy")


def matrix_products(measured: Sequence[Measurement]) -> list[Advice]:
    """Whether a lane multiplies matrices far more slowly than another one; nothing where none was timed undisturbed."""
    findings = []
    for precision, (rates, slow) in limits.matrix_products(measured).items():
        sentence = f"{'' if precision == 'fp32' else f'in {precision}: '}{rates}"
        if slow:
            lanes = " or ".join(slow)
            step = f"no documented setting mends it: mind it where {lanes} is compared in networks of large ones"
            findings.append(Advice("matrix products", "better", sentence, step))
        else:
            findings.append(Advice("matrix products", "good", sentence))
    return findings


def ceilings(measured: Sequence[Measurement]) -> list[Advice]:
    """What every row of a report is held against here: the best of all lanes, in each precision, and of memory."""
    highest = limits.ceilings(measured)
    rates = [
        f"{precision} {units.flop_rate(highest.reached(precision) or 0.0)} ({m.workload.lane}: "
        f"{m.metrics['compute_ceiling'].operation})"
        for precision, m in highest.compute.items()
    ]
    if highest.bandwidth:
        rates.append(f"memory {units.byte_rate(highest.bandwidth)}")
    if highest.disturbed:
        return [Advice("ceilings", "better", ", ".join(rates), _QUIET)]
    return [Advice("ceilings", "good", ", ".join(rates))] if rates else []


def disturbed(measured: Sequence[Measurement]) -> Advice:
    """Whether anything disturbed what was measured on the GPU, as rows of a report would say of the same programs."""
    disturbing = [(m.workload.lane, each) for m in measured for each in disturbances([m]) if each.cause != LOAD]
    if not disturbing:
        return Advice("disturbances", "good", f"none in {len(measured)} measurements")
    causes = {each.cause: f"{each.cause.happened} ({each.detail}, {lane})" for lane, each in reversed(disturbing)}
    steps = ". ".join(cause.next_step for cause in causes)
    count = f"{len(disturbing)} in {len(measured)} measurements"
    return Advice("disturbances", "better", f"{count}: {'; '.join(causes.values())}", steps)


def _error(measurement: Measurement) -> float:
    return max(float(of["error"]) for of in measurement.parity["probe"].values())


def _after(lane: str, measurement: Measurement) -> str:
    """What to do about a failure."""
    assert measurement.failure is not None
    if measurement.failure.kind == "unavailable":
        return f"correct that, or leave {lane} out: --fwbench-frameworks names the lanes that are measured"
    if measurement.failure.stage == "probe":
        return "its numbers would be of another arithmetic: look for variables that override it, as `env` shows them"
    workload = measurement.workload
    return f"all of it: `pytest --pyargs fwbench.suite.benchmarks --benchmark-only -k {lane}-{workload.model}`"

"""Tables of calls (inference and single training steps), their summary, and the break-even of compiling."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence

from fwbench import units
from fwbench.compare.cases import FALLBACK_MARK, Case, Comparison, OfCase, comparisons, grouped, reasons, title
from fwbench.compare.parity import WORDS
from fwbench.compare.weighing import Judged, Weighed, judge
from fwbench.report.columns import axis_columns, metric_column, workload_columns
from fwbench.report.ratios import ratios
from fwbench.report.tables import Column, Table, tabulate


def columns(cases: Sequence[Case], baseline: str | None) -> tuple[Column[Case], ...]:
    """The columns of a table over these cases; speed-up is relative to the baseline lane."""
    baselines = {case.workload.of_all: case for case in cases if case.workload.lane == baseline}

    def beside(case: Case) -> Case | None:
        return baselines.get(case.workload.of_all)

    def shown(case: Case) -> str:
        judged = _against(case, beside(case))
        return judged.evidence if judged and judged.weighed else ""

    return (
        *workload_columns(cases),
        Column("lane", lambda case: case.lane),
        metric_column("throughput/s", "throughput"),
        *(_TOKENS if any(case.value("tokens_per_second") for case in cases) else ()),
        *(metric_column(f"p{p}", f"latency_p{p}", "n/a") for p in (50, 95, 99)),
        *((_DEVICE,) if any(case.value("device_time") for case in cases) else ()),
        metric_column("memory", "peak_memory"),
        metric_column("J/sample", "energy_per_sample"),
        metric_column("compile", "compiling"),
        *((_COMPILATIONS,) if any(len(case.workload.each) > 1 for case in cases) else ()),
        metric_column("to steady", "time_to_steady"),
        Column("speed-up", lambda case: _speed_up(case, beside(case)), "1", units.ratio, ""),
        *((Column("evidence", shown),) if baseline else ()),
        *(_SPREAD if any(len(case.throughputs) > 1 for case in cases) else ()),
    )


_TOKENS: tuple[Column[Case], ...] = (
    metric_column("tokens/s", "tokens_per_second"),
    metric_column("J/token", "energy_per_token"),
    metric_column("state", "state_memory"),
)
_COMPILATIONS = Column[Case]("compilations", lambda case: case.value("compilations"), "1", "{:g}".format)
_DEVICE: Column[Case] = metric_column("on the GPU", "device_time")
_SPREAD = (
    Column[Case]("n", lambda case: len(case.throughputs), "1"),
    Column[Case]("spread", lambda case: case.spread, "1", "{:.1%}".format),
)


def table(key: str, name: str, cases: Sequence[Case], baseline: str | None) -> Table:
    """The table of these cases' calls: one row a workload and lane."""
    relative = (
        f"; speed-up is throughput relative to {title(baseline)}, and evidence what shows that both compute the same: "
        f"{WORDS}"
        if baseline
        else ""
    )
    return tabulate(
        key,
        name,
        "Throughput is samples per second with calls enqueued back to back; p50, p95 and p99 are latencies of one "
        "synchronised call, n/a where there are too few samples to say; memory after <= is at most that; compile is "
        "tracing and compiling with cold caches, as the framework tells it, compilations (of a list of sizes) their "
        "number until calls are steady; to steady is the time from its start until "
        f"calls are steady, in every lane alike, whatever it does at which call{relative}. Of several processes (n) "
        "every number is the median, speed-up the estimate over pairs of processes, and spread how far the highest "
        f"throughput lies above the lowest. Where other load or the like disturbed rows, a speed-up {units.OPEN}.",
        columns(cases, baseline),
        cases,
        _missing(cases),
        Case.why_failed,
    )


def summary(cases: Sequence[Case], baseline: str | None) -> Table:
    """Every lane's throughput at the largest batch of each model's inference, and its speed-up over the baseline."""
    every = comparisons(cases)
    by_model = grouped(every, lambda each: dataclasses.replace(each.workload, batch_size=each.workload.parts))
    largest = [max(of, key=lambda comparison: comparison.workload.batch_size) for of in by_model.values()]
    # A lane without a number at any largest batch has its column all the same.
    lanes = list(dict.fromkeys(lane for comparison in every for lane in comparison.lanes))
    others = [lane for lane in lanes if baseline and lane != baseline]

    # A lane that was not measured at the largest batch is a case without numbers.
    def throughput(lane: str, comparison: Comparison) -> float | None:
        return comparison.lanes.get(lane, Case(comparison.workload)).value("throughput")

    def speed_up(lane: str, comparison: Comparison) -> float | str | None:
        case = comparison.lanes.get(lane, Case(comparison.workload))
        return _speed_up(case, comparison.lanes.get(baseline or ""))

    relative = f", and speed-up over {title(baseline)}" if baseline else ""
    return tabulate(
        "summary",
        "Table I: inference at the largest batch",
        f"Samples per second by lane at the largest batch measured{relative}.",
        (
            Column("model", lambda comparison: comparison.workload.model),
            Column("precision", lambda comparison: comparison.workload.precision),
            Column("batch", lambda comparison: comparison.workload.batch_size, "1"),
            *axis_columns(largest),
            *(Column(f"{title(lane)} /s", functools.partial(throughput, lane), "1/s", units.rate) for lane in lanes),
            *(
                Column(f"{title(lane)} speed-up", functools.partial(speed_up, lane), "1", units.ratio)
                for lane in others
            ),
        ),
        largest,
        _without(baseline, largest) if baseline else [],
    )


def _without(baseline: str, largest: Iterable[Comparison]) -> list[str]:
    """A note on the workloads without a speed-up because the baseline was not measured; none where it always was."""
    workloads = (comparison.workload for comparison in largest if baseline not in comparison.lanes)
    named = ", ".join(f"{workload.subject} at batch {workload.batch_size}" for workload in workloads)
    return [f"no speed-up of {named}: {title(baseline)}, which it is relative to, has no number there"] if named else []


@dataclasses.dataclass(frozen=True)
class BreakEven(OfCase):
    """A compiled lane against the baseline.

    Attributes:
        compiling: seconds that compiling costs, once, beyond the baseline's.
        baseline: seconds of a call of the baseline, in calls back to back, as throughput is measured.
        weighed: the compiled lane's throughput over the baseline's.
    """

    compiling: float
    baseline: float
    weighed: Weighed

    @property
    def compiled(self) -> float:
        """Seconds of a call of the compiled lane, from the ratio of throughputs on which all answers rest."""
        return self.baseline / self.weighed.ratio

    @property
    def calls(self) -> float | None:
        """The number of calls after which compiling has paid off; None if it never does."""
        gained = self.baseline - self.compiled
        return self.compiling / gained if gained > 0 else None


def break_evens(cases: Sequence[Case], baseline: str | None) -> list[BreakEven]:
    """Every compiled lane that may be compared with the baseline lane, in inference or training steps."""
    pairs = []
    for ratio in ratios(cases, baseline):
        compiling = _compiling(ratio.case, ratio.beside)
        if ratio.weighed and compiling is not None:
            call = ratio.beside.workload.samples / (ratio.beside.value("throughput") or math.inf)
            pairs.append(BreakEven(ratio.case, compiling, call, ratio.weighed))
    return pairs


def _compiling(case: Case, baseline: Case) -> float | None:
    """Seconds by which a compiling lane is steady later than the baseline; None if it has no time of compiling.

    If either record lacks the time to steady, tracing and compiling alone count.
    """
    ready = case.value("compiling")
    if ready is None:
        return None
    start, other = case.value("time_to_steady"), baseline.value("time_to_steady")
    if start is None or other is None:
        start, other = ready, baseline.value("compiling") or 0.0
    return max(0.0, start - other)


def break_even(cases: Sequence[Case], baseline: str | None) -> Table:
    """The table of break-even: the number of calls after which each compilation has paid off."""
    return tabulate(
        "break-even",
        "When compiling has paid off",
        "The seconds that compiling costs (by which the lane is steady later, with kernels tuned and graphs recorded; "
        "where that is not known, tracing and compiling alone), what a call takes back to back in "
        f"{title(baseline or '')} and, by the ratio of throughputs, in the compiled lane, and the number of calls "
        "after which the compiled lane has caught up; never where its throughput is lower. Confidence is in which "
        "throughput is higher: where that is undecided, chance decides between never and many.",
        (
            *workload_columns(cases),
            Column("lane", lambda pair: pair.case.lane),
            Column("compiling", lambda pair: pair.compiling, "s", units.seconds),
            Column("baseline call", lambda pair: pair.baseline, "s", units.seconds),
            Column("compiled call", lambda pair: pair.compiled, "s", units.seconds),
            Column("calls to break even", lambda pair: pair.calls, "1", "{:,.0f}".format, "never"),
            Column("confidence", lambda pair: pair.weighed.confidence),
        ),
        break_evens(cases, baseline),
    )


def _against(case: Case, baseline: Case | None) -> Judged | None:
    """A case against the baseline's; None for the baseline itself, and if one of the two has no throughput."""
    if baseline is None or case is baseline or not case.value("throughput") or not baseline.value("throughput"):
        return None
    return judge(case, baseline)


def _speed_up(case: Case, baseline: Case | None) -> float | str | None:
    """Throughput over the baseline's, or why the two may not be compared; None if one of them has none."""
    if case is baseline:
        return 1.0 if case.value("throughput") else None
    judged = _against(case, baseline)
    return judged.shown if judged else None


def _missing(cases: Sequence[Case]) -> list[str]:
    measured = [case for case in cases if case.replicates]
    lines = [f"no energy: {reason}" for reason in reasons(measured, "energy_per_sample")[:1]]
    fell = f"the lane as it is usually run, where {FALLBACK_MARK} stands: it crashed, and ran with other flags"
    return [*lines, fell] if any(any(case.fallbacks) for case in measured) else lines

"""Tables of calls: inference and single training steps."""

from collections.abc import Sequence

from fwbench import units
from fwbench.compare.cases import FALLBACK_MARK, Case, reasons, title
from fwbench.compare.parity import WORDS
from fwbench.compare.weighing import Judged, judge
from fwbench.report.columns import metric_column, workload_columns
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
        Column("speed-up", lambda case: speed_up(case, beside(case)), "1", units.ratio, ""),
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


def _against(case: Case, baseline: Case | None) -> Judged | None:
    """A case against the baseline's; None for the baseline itself, and if one of the two has no throughput."""
    if baseline is None or case is baseline or not case.value("throughput") or not baseline.value("throughput"):
        return None
    return judge(case, baseline)


def speed_up(case: Case, baseline: Case | None) -> float | str | None:
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

"""What a paper says with its numbers: where they are from, and of how many processes each is made."""

from collections.abc import Iterable

from fwbench.record.lanes import LANES
from fwbench.report.cases import Case, Setting, over_seeds

# The mode that a table or a figure is about, by its key; others are about all that was measured.
_MODES = {
    **dict.fromkeys(("summary", "inference", "latency-inference"), "inference"),
    **dict.fromkeys(("throughput-by-batch", "throughput-bars", "memory-bars", "energy-bars"), "inference"),
    **dict.fromkeys(("throughput-latency", "energy-latency"), "inference"),
    **dict.fromkeys(("training-steps", "latency-train-step", "training-steps-by-batch"), "train_step"),
    **dict.fromkeys(
        ("final-epoch", "epochs", "epoch-time", "training-time", "training-curves", "learning-curves"), "fit"
    ),
    **dict.fromkeys(("epoch-time-by-batch", "epoch-energy-by-batch", "accuracy-by-batch"), "fit"),
    **dict.fromkeys(("training-time-bars", "training-memory-host", "training-memory-device"), "fit"),
}

# The tables that have a form for a column of a paper, each with the columns that there is no room for.
MINOR = {
    "ratios": {"at", "disturbed by"},
    "summary": {"precision"},
    "inference": {"mode", "p95", "p99", "compile", "to steady", "n"},
    "training-steps": {"mode", "p95", "p99", "compile", "to steady", "n"},
    "limits": {"FLOP a call", "bytes a call"},
    "final-epoch": {"train loss", "val. loss"},
    "epoch-time": {"waiting", "evaluating", "throughput/s", "train loss", "val. loss"},
    "training-time": set[str](),
}


def origin(setting: Setting, key: str) -> str:
    """Where a table's or a figure's numbers are from: machine, versions, commit, and of how many processes each is."""
    # Figures of one kind are numbered.
    mode = _MODES.get(key.rstrip("-0123456789"), "")
    cases = [case for case in setting.cases if case.replicates and not case.internal]
    of_mode = [case for case in cases if not mode or case.workload.mode == mode]
    told = (_machine(setting), _versions(setting, of_mode), _commit(setting), _count(of_mode))
    return "; ".join(filter(None, told))


def _machine(setting: Setting) -> str:
    machine = setting.machine
    if machine is None:
        return "an unnamed machine"
    if machine.device == "gpu":
        return machine.accelerator + (f", driver {machine.driver}" if machine.driver else "")
    return f"{machine.cpu}, {machine.threads} thread{'s' * (machine.threads != 1)}"


def _versions(setting: Setting, cases: Iterable[Case]) -> str:
    """Of each framework that was measured, under its distribution's name."""
    found: dict[str, None] = {}
    for lane in dict.fromkeys(case.workload.lane for case in cases):
        of = setting.versions.get(lane, {})
        named = [name for name in (LANES[lane].distributions[:1] if lane in LANES else of) if name in of]
        found |= {f"{name} {of[name]}": None for name in named[:1]}
    return ", ".join(found)


def _commit(setting: Setting) -> str:
    found: dict[str, None] = {}
    for record in setting.records:
        if "id" in record.commit:
            changed = " with uncommitted changes" if record.commit.get("dirty") else ""
            found[f"{str(record.commit['id'])[:10]}{changed}"] = None
    if not found:
        return "commit not recorded"
    return f"commit{'s' * (len(found) > 1)} {', '.join(found)}"


def _count(cases: Iterable[Case]) -> str:
    """How many processes a number is the median of."""
    counts = [sum(len(m.processes) or 1 for m in case.measurements) for case in over_seeds(cases)]
    if not counts:
        return ""
    least, most = min(counts), max(counts)
    return f"n = {least if least == most else f'{least} to {most}'} process{'es' * (most != 1)} a row"

"""The origin of numbers, as a paper states it: machine, versions, commit, and the number of processes behind each."""

from collections.abc import Iterable

from fwbench.compare.cases import Case, Setting, measured, over_seeds
from fwbench.record.lanes import LANES


def origin(setting: Setting, mode: str) -> str:
    """The origin of a table's or a figure's numbers: machine, versions, commit, and the number of processes a row.

    Args:
        mode: the mode that it shows; empty: all that was measured.
    """
    of_mode = [case for case in measured(setting.cases) if not mode or case.workload.mode == mode]
    parts = (_machine(setting), _versions(setting, of_mode), _commit(setting), _count(of_mode))
    return "; ".join(filter(None, parts))


def _machine(setting: Setting) -> str:
    machine = setting.machine
    if machine is None:
        return "an unnamed machine"
    return machine.title + (f", driver {machine.driver}" if machine.device == "gpu" and machine.driver else "")


def _versions(setting: Setting, cases: Iterable[Case]) -> str:
    """The version of each measured framework, by its distribution's name."""
    named: dict[str, None] = {}
    for lane in dict.fromkeys(case.workload.lane for case in cases):
        of = setting.versions.get(lane, {})
        distributions = [name for name in (LANES[lane].distributions[:1] if lane in LANES else of) if name in of]
        named |= {f"{name} {of[name]}": None for name in distributions[:1]}
    return ", ".join(named)


def _commit(setting: Setting) -> str:
    commits: dict[str, None] = {}
    for record in setting.records:
        if "id" in record.commit:
            changed = " with uncommitted changes" if record.commit.get("dirty") else ""
            commits[f"{str(record.commit['id'])[:10]}{changed}"] = None
    if not commits:
        return "commit not recorded"
    return f"commit{'s' * (len(commits) > 1)} {', '.join(commits)}"


def _count(cases: Iterable[Case]) -> str:
    """The number of processes whose median a row shows, in words."""
    counts = [sum(len(m.processes) or 1 for m in case.measurements) for case in over_seeds(cases)]
    if not counts:
        return ""
    least, most = min(counts), max(counts)
    return f"n = {least if least == most else f'{least} to {most}'} process{'es' * (most != 1)} a row"

"""The origin of numbers, as a paper states it: machine, versions, commit, and the number of processes behind each."""

from collections.abc import Iterable

from fwbench.compare.cases import Case, Setting, measured, over_seeds
from fwbench.record.lanes import LANES


def origin(setting: Setting, mode: str) -> str:
    """The origin of a mode's numbers (an empty one: of all): machine, versions, commit, and processes a row."""
    of_mode = [case for case in measured(setting.cases) if not mode or case.workload.mode == mode]
    machine = setting.machine
    driver = f", driver {machine.driver}" if machine and machine.device == "gpu" and machine.driver else ""
    named = f"{machine.title}{driver}" if machine else "an unnamed machine"
    return "; ".join(filter(None, (named, _versions(setting, of_mode), _commit(setting), _count(of_mode))))


def _versions(setting: Setting, cases: Iterable[Case]) -> str:
    """The version of each measured framework, by its distribution's name."""
    named: dict[str, None] = {}
    for lane in dict.fromkeys(case.workload.lane for case in cases):
        of = setting.versions.get(lane, {})
        distributions = [name for name in (LANES[lane].distributions[:1] if lane in LANES else of) if name in of]
        named |= {f"{name} {of[name]}": None for name in distributions[:1]}
    return ", ".join(named)


def _commit(setting: Setting) -> str:
    stated = (record.commit for record in setting.records if "id" in record.commit)
    changed = {False: "", True: " with uncommitted changes"}
    commits = dict.fromkeys(f"{str(commit['id'])[:10]}{changed[bool(commit.get('dirty'))]}" for commit in stated)
    return f"commit{'s' * (len(commits) > 1)} {', '.join(commits)}" if commits else "commit not recorded"


def _count(cases: Iterable[Case]) -> str:
    """The number of processes whose median a row shows, in words."""
    counts = [sum(len(m.processes) or 1 for m in case.measurements) for case in over_seeds(cases)]
    least, most = min(counts, default=0), max(counts, default=0)
    return f"n = {least if least == most else f'{least} to {most}'} process{'es' * (most != 1)} a row" if counts else ""

"""Groups the workloads of records with their replicates, separately for each machine, version and profile."""

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fwbench.compare import rounds
from fwbench.compare.matching import distinct
from fwbench.compare.ratios import Scatter
from fwbench.machine import Machine
from fwbench.record.lanes import BASELINE, LANES, PLACES, RECORDED
from fwbench.record.measurement import CHANGED, PEAK_MEMORY, Measurement
from fwbench.record.metrics import ERRORS
from fwbench.record.storage import Record
from fwbench.record.workload import FORWARD, HARNESS_MODES, Workload, keeps
from fwbench.units import AtMost

_Item = TypeVar("_Item")
_Key = TypeVar("_Key")

# Fields of a workload that are shown beside its lane if they are not the default.
OPTIONS = ("weights", "optimizer", "accumulate", "remat", "plain", "call")

# Shown beside a lane that ran with fallback flags after a crash.
FALLBACK_MARK = "(fallback)"


# Quantities that a table or a figure can show besides the metrics, each with its unit and its value for a process.
DERIVED: Mapping[str, tuple[str, Callable[[Measurement], float | None]]] = {
    "peak_memory": ("B", lambda m: m.value(PEAK_MEMORY[m.workload.device])),
    "compiling": ("s", lambda m: m.compiling),
    "compilations": ("1", lambda m: m.program.compilations if m.program else None),
    # Seconds of all epochs after the first, if there are any.
    "training": ("s", lambda m: sum(epoch["seconds"] for epoch in m.training.get("epochs", ())[1:]) or None),
}


@dataclass(frozen=True)
class Case:
    """The workload of one row of a table, and its measurements: one for each process.

    Attributes:
        workload: with seed 0 if the case spans seeds, and without the data's path.
        replicates: measurements that have numbers, each with the number of its run.
        failures: measurements without numbers.
        commits: of the runs, as far as the records state them.
        turns: its lane's turns in each round that counts, with the number of the run.
        expected: the scatter to expect of its rounds; over several runs, the largest scatter.
    """

    workload: Workload
    replicates: tuple[tuple[int, Measurement], ...] = ()
    failures: tuple[Measurement, ...] = ()
    commits: tuple[str, ...] = ()
    turns: tuple[tuple[int, rounds.Turns], ...] = ()
    expected: Scatter = field(default_factory=Scatter)

    @property
    def measurements(self) -> list[Measurement]:
        """The measurements that have numbers."""
        return [m for _, m in self.replicates]

    def why_failed(self) -> str:
        """The kind of failure if there are no numbers at all; empty if there are some."""
        failure = self.failures[0].failure if self.failures and not self.replicates else None
        return failure.kind if failure else ""

    @property
    def seeds(self) -> int:
        """The number of seeds that have numbers."""
        return len({m.workload.seed for m in self.measurements})

    @property
    def internal(self) -> bool:
        """True if it measures the harness itself and not a framework."""
        lane = LANES.get(self.workload.lane)
        return self.workload.mode in HARNESS_MODES or (lane is not None and lane.internal)

    @property
    def as_asked(self) -> bool:
        """True if no probe has found another arithmetic than the precision that was asked for."""
        probes = [probe for m in self.measurements for probe in (m.parity.get("probe") or {}).items()]
        return all(keeps(name, probe.get("arithmetic"), self.workload.precision) for name, probe in probes)

    def surroundings(self, *, threads: bool = True) -> set[str]:
        """The surroundings of its processes that change a framework's numbers: variables and the number of CPUs.

        They include settings that the network's own code has changed, and the numbers of threads and CPUs only if
        `threads`. Each is a JSON text, and equal ones count once.
        """
        left_out = PLACES if threads else PLACES | {"OMP_NUM_THREADS"}
        surroundings = (
            {
                **{n: v for n, v in m.settings.items() if n.startswith(RECORDED) and n not in left_out},
                **({"cpus": len(m.settings.get("cpus", ()))} if threads else {}),
                **{name: m.settings.get(name) for name in m.settings.get(CHANGED, ())},
            }
            for m in self.measurements
        )
        return {json.dumps(each, sort_keys=True) for each in surroundings}

    @property
    def fallbacks(self) -> set[str]:
        """The fallback flags of its processes; an empty text stands for a process that needed none."""
        return {m.fallback for m in self.measurements}

    @property
    def quantised(self) -> str:
        """The format that its lane rounds weights to; empty: it keeps them."""
        return next((m.quantised for m in self.measurements if m.quantised), "")

    @property
    def error(self) -> str:
        """The metric of its error against float64: the output's or, in training, the gradients'."""
        return ERRORS["output" if self.workload.mode in FORWARD else "gradients"]

    def values(self, quantity: str) -> list[float]:
        """The values of a metric or of one of `DERIVED`, one for each process that has it."""
        of = DERIVED[quantity][1] if quantity in DERIVED else lambda m: m.value(quantity)
        return [value for m in self.measurements if (value := of(m)) is not None]

    def value(self, quantity: str) -> float | None:
        """The median over processes; None if no process has the quantity.

        It is `AtMost` if the true value may be lower, such as an allocator's peak that counts from the start of the
        process, tuning included (JAX's on a GPU).
        """
        values = self.values(quantity)
        if not values:
            return None
        median = statistics.median(values)
        metric = PEAK_MEMORY[self.workload.device] if quantity == "peak_memory" else quantity
        at_most = any(m.metrics[metric].at_most for m in self.measurements if metric in m.metrics)
        return AtMost(median) if at_most else median

    @property
    def throughputs(self) -> list[float]:
        """The throughput of each process that has one; a measurement by several processes gives several."""
        return [value for m in self.measurements for value in throughputs(m) if value]

    @property
    def spread(self) -> float | None:
        """The share by which its processes' highest throughput exceeds the lowest; None with fewer than two."""
        speeds = self.throughputs
        return max(speeds) / min(speeds) - 1 if len(speeds) > 1 else None

    @property
    def lane(self) -> str:
        """The lane for readers, with unusual options, the format of quantised weights, fallbacks and unfit batches."""
        workload = self.workload
        options = (
            *workload.marks(("precision", *OPTIONS)),
            f"({workload.variant})" if workload.variant else "",
            f"({self.quantised})" if self.quantised else "",
            FALLBACK_MARK if any(self.fallbacks) else "",
            *(f"({batch} asked)" for batch in sorted({m.unfit[0] for m in self.measurements if m.unfit})),
        )
        return " ".join((workload.lane, *filter(None, options)))


@dataclass(frozen=True)
class OfCase:
    """Base class of a table's row or a figure's point that shows one case."""

    case: Case

    @property
    def workload(self) -> Workload:
        """The case's workload, which decides the place of the row or point."""
        return self.case.workload


@dataclass(frozen=True)
class Setting:
    """Records whose numbers may stand in one table: one machine, one profile, one version of each lane's distributions.

    Their cases are in the order in which they were measured, each seed by itself.
    """

    machine: Machine | None
    profile: str | None
    versions: Mapping[str, Mapping[str, str]]
    records: tuple[Record, ...]
    cases: tuple[Case, ...]

    @property
    def measurements(self) -> list[Measurement]:
        """The measurements of all cases, failures included."""
        return [m for case in self.cases for m in (*case.measurements, *case.failures)]

    @property
    def traits(self) -> dict[str, str]:
        """The traits besides versions that can set it apart from another setting, by name, in words for readers."""
        machine = self.machine
        words = {"profile": f"{self.profile or 'unknown'} profile"}
        if machine is None:
            return {**words, "machine": "an unnamed machine"}
        words |= {"machine": machine.cpu, "threads": f"{machine.threads} threads"}
        if machine.device == "gpu":
            words |= {"machine": machine.accelerator, "cpu": machine.cpu, "driver": f"driver {machine.driver}"}
        if machine.power_limit is not None:
            words["power limit"] = f"{machine.power_limit} W"
        return words


def settings(records: Sequence[Record]) -> list[Setting]:
    """Group records into settings, in each of which numbers may stand in one table.

    A measurement that two records hold (a saved run and its journal) counts once.
    """
    groups: list[tuple[list[Record], dict[str, Mapping[str, str]]]] = []
    for record in records:
        if not record.measurements:
            continue
        versions = {m.workload.lane: m.versions for m in record.measurements if m.versions}
        for alike, known in groups:
            if _alike(alike[0], record) and all(known.get(lane, of) == of for lane, of in versions.items()):
                alike.append(record)
                known |= versions
                break
        else:
            groups.append(([record], versions))
    return [
        Setting(alike[0].machine, alike[0].profile, versions, tuple(alike), tuple(_cases(alike)))
        for alike, versions in groups
    ]


def separations(settings: Sequence[Setting]) -> list[list[str]]:
    """The traits and versions of each setting that differ from another setting's."""
    return [
        list(dict.fromkeys(said for other in settings if other is not own for said in _separating(own, other)))
        for own in settings
    ]


def _separating(own: Setting, other: Setting) -> list[str]:
    beside = other.traits
    traits = [said for name, said in own.traits.items() if beside.get(name, said) != said]
    versions = [
        f"{name} {mine[name]}" if name in mine else f"no {name}"
        for lane, mine in own.versions.items()
        if lane in other.versions
        for name in dict.fromkeys((*mine, *other.versions[lane]))
        if mine.get(name) != other.versions[lane].get(name)
    ]
    return [*traits, *versions]


def throughputs(m: Measurement) -> Sequence[float | None]:
    """The throughput of each process that made a measurement."""
    return [process.get("throughput") for process in m.processes] or [m.value("throughput")]


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """The items of each key; keys are in the order in which they first occur."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def cases(measurements: Iterable[Measurement], run: int = 0, commits: tuple[str, ...] = ()) -> list[Case]:
    """One run's measurements as cases, with the rounds of turns that count by the whole run's usual pace."""
    given = list(measurements)
    usual = rounds.usual(turns for m in given for turns in m.turns)
    lanes = grouped((m for m in given if m.turns), lambda m: m.workload.of_all)
    played = {
        contest: rounds.Played({m.workload.lane: rounds.counted(m.turns, usual) for m in of}, rounds.device_times(of))
        for contest, of in lanes.items()
    }
    alone = []
    for m in given:
        workload = m.workload.anywhere
        if m.failure:
            alone.append(Case(workload, failures=(m,), commits=commits))
            continue
        contest = m.workload.of_all
        own = played.get(contest, rounds.Played({}, {}))
        turns = tuple((run, each) for each in own.turns.get(m.workload.lane, ()))
        expected = rounds.expected(own, (of for of in played.values() if of is not own)).get(m.workload.lane, Scatter())
        alone.append(Case(workload, ((run, m),), commits=commits, turns=turns, expected=expected))
    return _merged(alone, lambda case: case.workload)


def _merged(given: Iterable[Case], key: Callable[[Case], Workload]) -> list[Case]:
    """Merge cases that have the same key, which becomes their workload."""
    return [
        Case(
            workload,
            tuple(replicate for case in of for replicate in case.replicates),
            tuple(failure for case in of for failure in case.failures),
            tuple(dict.fromkeys(commit for case in of for commit in case.commits)),
            tuple(turns for case in of for turns in case.turns),
            max((case.expected for case in of if case.turns), key=lambda each: each.deviation, default=Scatter()),
        )
        for workload, of in grouped(given, key).items()
    ]


def measured(given: Iterable[Case]) -> list[Case]:
    """The cases that have numbers, without those that measure the harness itself."""
    return [case for case in given if case.replicates and not case.internal]


def reasons(given: Iterable[Case], metric: str) -> list[str]:
    """The reasons why processes have no value of a metric, each once."""
    metrics = (m.metrics[metric] for case in given for m in case.measurements if metric in m.metrics)
    return list(dict.fromkeys(metric.reason for metric in metrics if metric.reason))


def over_seeds(given: Iterable[Case]) -> list[Case]:
    """Merge cases that differ only in their seed."""
    return _merged(given, lambda case: dataclasses.replace(case.workload, seed=0))


def by_workload(given: Iterable[Case]) -> dict[Workload, dict[str, Case]]:
    """By workload, whose `lane` is empty, and by lane, the cases that have numbers; seeds are replicates."""
    workloads: dict[Workload, dict[str, Case]] = {}
    for case in over_seeds(measured(given)):
        workloads.setdefault(case.workload.of_all, {})[case.workload.lane] = case
    return workloads


def baseline(given: Iterable[Case]) -> str | None:
    """The lane to compare others with if nobody names one; None if fewer than two lanes were measured.

    It is fwbench's own baseline if that was measured, else the first lane.
    """
    lanes = list(dict.fromkeys(lane for lanes in by_workload(given).values() for lane in lanes))
    if len(lanes) < 2:
        return None
    return BASELINE.name if BASELINE.name in lanes else lanes[0]


def title(lane: str) -> str:
    """A lane's name for readers."""
    return LANES[lane].title if lane in LANES else lane


def short(lane: str, beside: Iterable[str]) -> str:
    """A lane's name, without its mode if no other of these lanes is of the same framework."""
    name, *others = (title(each).partition(" (")[0] for each in (lane, *(other for other in beside if other != lane)))
    return title(lane) if name in others else name


def in_words(mode: str) -> str:
    """The name for sentences of what a mode measures, such as `training steps`."""
    return _WORDS.get(mode, mode)


_WORDS = {"train_step": "training steps", "fit": "epochs of training"}


def _cases(records: Iterable[Record]) -> list[Case]:
    unmerged = []
    for run, record in enumerate(distinct(records)):
        commits = (str(record.commit["id"]),) if record.commit.get("id") else ()
        unmerged += cases(record.measurements, run, commits)
    return _merged(unmerged, lambda case: case.workload)


def _alike(one: Record, other: Record) -> bool:
    if one.profile != other.profile:
        return False
    if one.machine is None or other.machine is None:
        return one.machine is other.machine
    # A driver is one more version on which numbers depend.
    return not one.machine.differences(other.machine) and one.machine.driver == other.machine.driver

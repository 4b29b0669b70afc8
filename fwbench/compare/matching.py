"""The benchmarks of two records, and the pairs of them that belong together."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fwbench.compare.criteria import by_metric
from fwbench.record.copies import Copies
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Measurement
from fwbench.record.storage import Record


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of one record, with its values by metric, one for each process, and the test that measured it.

    Its name is its workload's id. A plain benchmark has its full name, and no measurement.
    """

    name: str
    values: Mapping[str, Sequence[float]]
    measurement: Measurement | None = None
    test: str | None = None

    @property
    def asked(self) -> str:
        """The name under which it was asked for, which is another one if its batch did not fit into memory."""
        return self.measurement.asked.id if self.measurement else self.name


def without_harness(record: Record) -> Record:
    """The record without benchmarks of the harness itself, whose nanoseconds depend on the machine alone."""
    internal = {lane.name for lane in LANES.values() if lane.internal}
    measurements = tuple(m for m in record.measurements if m.workload.lane not in internal)
    return replace(record, measurements=measurements)


def distinct(records: Iterable[Record]) -> list[Record]:
    """Records without repeated measurements, in the order of their own times.

    If several records hold a measurement (a journal, the saved run, a run that resumed it, copies), its fullest copy
    counts. It stays in the record that holds the most others, so that a run's measurements stay together. A record
    with nothing left is dropped. The order of the given records does not matter.
    """
    given = sorted(records, key=lambda record: (record.made, str(record.path)))
    fullest = Copies(m for record in given for m in record.measurements)
    commits = {number: record.commit for record in given if record.commit for number in _numbers(record, fullest)}
    taken: set[int] = set()
    kept = []
    # A saved run comes before its journal.
    for record in sorted(given, key=lambda record: (_measured(record), record.path.suffix == ".json"), reverse=True):
        if new := [number for number in _numbers(record, fullest) if number not in taken]:
            commit = record.commit or next((commits[number] for number in new if number in commits), {})
            measurements = tuple(fullest.kept[number] for number in new)
            kept.append(replace(record, measurements=measurements, commit=commit))
            taken.update(new)
    return sorted(kept, key=lambda record: (record.made, str(record.path)))


def _numbers(record: Record, fullest: Copies) -> list[int]:
    return list(dict.fromkeys(map(fullest.number, record.measurements)))


def _measured(record: Record) -> int:
    return sum(not m.failure for m in record.measurements)


def benchmarks(record: Record) -> dict[str, Benchmark]:
    """The benchmarks of a record that have numbers, by name."""
    medians = {name: plain.stats["median"] for name, plain in record.plain.items()}
    by_name = {name: Benchmark(name, {"latency": [median]} if median > 0 else {}) for name, median in medians.items()}
    for m in without_repeats(record):
        by_name[m.workload.id] = Benchmark(m.workload.id, by_metric(m), m, record.names.get(m.workload))
    return by_name


def without_repeats(record: Record) -> list[Measurement]:
    """The measurements with numbers, except batches that were halved to one that the run has measured anyhow."""
    measured = [m for m in record.measurements if not m.failure]
    kept = []
    for place, m in enumerate(measured):
        same = ((at, other.unfit) for at, other in enumerate(measured) if other.workload.id == m.workload.id)
        if not m.unfit or not any(not unfit or (unfit != m.unfit and at < place) for at, unfit in same):
            kept.append(m)
    return kept


def measured_twice(record: Record) -> set[str]:
    """The ids of workloads that a record holds more than once, so that it is unknown which measurement counts."""
    counts = Counter(m.workload.id for m in without_repeats(record))
    return {name for name, count in counts.items() if count > 1}


def matched(base: Mapping[str, Benchmark], head: Mapping[str, Benchmark]) -> list[tuple[Benchmark, Benchmark]]:
    """Match benchmarks by workload, and the rest by the test that measured them or the batch that was asked for.

    Matches of the second kind cannot be compared, but let the report say why.
    """
    pairs = [(side, head[name]) for name, side in base.items() if name in head]
    left = {key: side for name, side in head.items() if name not in base for key in (side.test, side.asked) if key}
    for name, side in base.items():
        key = next((key for key in (side.test, side.asked) if key in left), None)
        if name not in head and key:
            pairs.append((side, left[key]))
    return pairs


def nothing_shared(base: Mapping[str, Benchmark], head: Mapping[str, Benchmark], of_duet: Sequence[bool]) -> str:
    """The reason why two records have no benchmark in common; `of_duet`: whether each is the journal of a duet."""
    if not base or not head:
        holds = "pairs of a duet, which its own run has compared" if of_duet[bool(base)] else "no measured benchmark"
        return f"{'this run' if base else 'the baseline'} holds {holds}"
    for name in ("precision", "batch_size", "mode", "model", "lane"):
        theirs, ours = (
            {getattr(side.measurement.workload, name) for side in sides.values() if side.measurement}
            for sides in (base, head)
        )
        if theirs and ours and not theirs & ours:
            values = [", ".join(map(str, sorted(shared))) for shared in (theirs, ours)]
            return f"no benchmark is in both: {name} is {values[0]} in the baseline, {values[1]} here"
    return "no benchmark is in both"

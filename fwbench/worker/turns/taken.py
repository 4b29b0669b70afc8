"""The turns of a round, and the pair that the turns of base and head make."""

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fwbench.compare.pair import Pair
from fwbench.record.quantiles import quantile

# After its first call a turn times at least two more, or one if a call takes longer than this many seconds.
SLOW = 0.1
# Seconds of calls that fill a device's queue.
_QUEUED = 0.5
# The most calls of a turn whose times a pair stores.
_STORED_CALLS = 20


@dataclass(frozen=True)
class Amounts:
    """The amounts of a round: its placings, blocks, turns and calls.

    Attributes:
        placings: the number of times that the programs are placed in fresh memory.
        blocks: the most blocks of turns after one placing.
        turn: the fewest seconds that a turn's calls after the first take.
        queue: the fewest calls after the first, unless these take longer than half a second.
        fewest, enough: turns of each seat after which a round of lanes may end early, and those after which it ends.
        seconds: the most seconds that all turns take together, unless one block after each placing takes longer.
        single: a turn is one call if a call takes this many seconds: refilling the caches adds little to it.
    """

    placings: int
    blocks: int
    turn: float
    seconds: float
    single: float = math.inf
    queue: int = 0
    fewest: int = 0
    enough: int = 0

    def timed(self, call: float) -> int:
        """The number of a turn's calls after its first, for calls of so many seconds."""
        least = 1 if call > SLOW else 2
        return max(least, math.ceil(self.turn / call), min(self.queue, math.ceil(_QUEUED / call)))

    def of(self, latency: float, seats: int) -> tuple[int, int]:
        """The number of calls in a turn, the first one included, and the number of blocks after a placing."""
        rounds = 1 if latency >= self.single else 1 + self.timed(latency)
        block = self.placings * 2 * seats * rounds * latency
        return rounds, min(self.blocks, max(1, int(self.seconds / block)))

    def turns(self, latency: float, seats: int) -> float:
        """The seconds that all turns take together if `enough` are."""
        rounds, blocks = self.of(latency, seats)
        blocks = min(blocks, self.enough // 2 or blocks)
        return self.placings * blocks * 2 * seats * rounds * latency


class Taken:
    """The turns of a round; the `unfit` batches before its own did not fit into memory.

    Attributes:
        amounts: the amounts of its round.
        described: settings and versions by the seat's name.
        flags: the fallback flags with which all ran.
        latency: seconds of a call, of the slowest program.
        rounds, blocks: calls of a turn, the first one included, and blocks of a placing.
        memory, sources: by seat, the process's peaks of memory, and the digests of the files that it has read.
        once: by seat, the metrics that its process measures once: `compile_time`, with empty caches; `warm_start`, of a
            second process; `energy`; of a plain test `first_call` and `peak_memory`.
        cpu, others: CPU seconds available during lanes' turns, and those that other processes used.
        held: whether a process was held back in each try of a turn.
        waits: of each of lanes' turns, the share of its time for which threads waited for a CPU, where that is known.
        paces: the pace (`fwbench.machine.pace`) before the first block and after each, in seconds; 0: unknown.
    """

    def __init__(self, amounts: Amounts, unfit: tuple[int, ...] = ()) -> None:
        self.amounts = amounts
        self.described: dict[str, Any] = {}
        self.flags = ""
        self.cpu = self.others = 0.0
        self.held = False
        self.waits: list[float] = []
        self.paces: list[float] = []
        self._unfit = unfit
        self.rounds = self.blocks = 0
        self.latency = 0.0
        self.memory: dict[str, Mapping[str, float]] = {}
        self.once: dict[str, dict[str, float]] = {}
        self.sources: dict[str, Mapping[str, str]] = {}
        self._call_seconds: dict[str, list[float]] = defaultdict(list)
        # Logarithms of turns' values: by metric, placing and block, then by the seat's name.
        self._logarithms: dict[tuple[str, int, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def plan(self, latency: float, seats: int) -> None:
        """Choose the calls in a turn and the blocks in a placing for calls of so many seconds."""
        self.latency = latency
        self.rounds, self.blocks = self.amounts.of(latency, seats)

    def turn(self, placing: int, block: int, name: str, rounds: Sequence[float], cpu_time: float) -> None:
        """Note a turn of the seat of this name: seconds of its calls, and mean CPU seconds of a call."""
        self._call_seconds[name].extend(rounds[:_STORED_CALLS])
        for metric, value in (("latency", min(rounds)), ("cpu_time", cpu_time)):
            self.keep(metric, placing, block, name, value)

    def keep(self, metric: str, placing: int, block: int, name: str, value: float) -> None:
        """Note a turn's value of a metric."""
        self._logarithms[metric, placing, block][name].append(math.log(max(value, 1e-9)))

    def turns_of(self, metric: str, name: str, blocks: Collection[int] | None = None) -> tuple[float, ...]:
        """A seat's values of a metric, in the order of its turns; of these blocks of each placing, or of all."""
        return tuple(
            math.exp(value)
            for (kept_metric, _, block), by_seat in sorted(self._logarithms.items())
            if kept_metric == metric and (blocks is None or block in blocks)
            for value in by_seat.get(name, ())
        )

    def pair(self, device: str, seconds: float, disturbed: str = "") -> Pair:
        """The pair that the turns make.

        In a block A B B A each turn has a neighbour of the other side. The median over all neighbours scatters by a
        third less than that over blocks where the machine is slow in spells.
        """
        differences = {
            metric: statistics.median(
                head - base
                for (kept_metric, _, _), sides in self._logarithms.items()
                if kept_metric == metric
                for head, base in zip(sides["head"], sides["base"], strict=True)
            )
            for metric in ("latency", "cpu_time")
        }
        once = {name: gated(self.memory.get(name, {}), device) | self.once.get(name, {}) for name in ("base", "head")}
        for metric in once["base"].keys() & once["head"].keys():
            differences[metric] = math.log(once["head"][metric] / once["base"][metric])
        values = {name: self._times(name) | of_metrics for name, of_metrics in once.items()}
        # A plain dict: Python 3.11's `dataclasses.asdict` cannot copy a `defaultdict`.
        calls = dict(self._call_seconds)
        drift = self._drift()
        conditions = (seconds, self.flags, self._unfit, self.held, disturbed)
        return Pair(differences, calls, values, self.described, drift, *conditions)

    def _times(self, name: str) -> dict[str, float]:
        """The side's median call, and its median turn's CPU time, in seconds."""
        turns = [
            side for (metric, _, _), sides in self._logarithms.items() if metric == "cpu_time" for side in sides[name]
        ]
        return {"latency": quantile(self._call_seconds[name], 50), "cpu_time": math.exp(statistics.median(turns))}

    def _drift(self) -> float:
        def level(placing: int, block: int) -> float:
            sides = self._logarithms["latency", placing, block].values()
            return statistics.mean(value for side in sides for value in side)

        return statistics.median(
            level(placing, self.blocks - 1) - level(placing, 0) for placing in range(self.amounts.placings)
        )


def gated(peaks: Mapping[str, float], device: str) -> dict[str, float]:
    """A side's memory under the names that the gate uses."""
    names = {
        "program_memory": "program_memory",
        f"{'device' if device == 'gpu' else 'host'}_peak_memory": "peak_memory",
    }
    return {name: peaks[source] for source, name in names.items() if peaks.get(source)}

"""The operators behind a difference between two programs: their times, by the framework's own profiler.

An operator's time excludes that of the operators within it. The runs of one operator on the same shapes
are added within a call; the median over the faster half of the calls counts. The profiler itself takes memory, so a
call may have to wait for fresh pages, which doubles the time of an operator that writes much.
"""

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fwbench.record.spans import Span

# An operator's name and shapes.
Key = tuple[str, str]

# Endings that XLA adds to make an instruction's name unique: `.12`, `.clone`, `.remat2`.
_NUMBERS = re.compile(r"(?:\.\d+|\.clone|\.remat\d*)+$")


@dataclass(frozen=True)
class Spent:
    """The time of one operator in a call.

    Attributes:
        runs: runs in a call, on average.
        seconds: seconds in a call.
        place: the file and line that asked for its first run, or a graph's node.
    """

    runs: float = 0.0
    seconds: float = 0.0
    place: str = ""


@dataclass(frozen=True)
class Profile:
    """The time of a call, operator by operator.

    Attributes:
        seconds: seconds of a call under the profiler.
        operators: the operators by name and shapes; or functions, by name and file.
    """

    seconds: float
    operators: Mapping[Key, Spent]

    @property
    def outside(self) -> float:
        """Seconds of a call outside of all operators: Python, dispatch, waiting."""
        return self.seconds - sum(spent.seconds for spent in self.operators.values())


@dataclass(frozen=True)
class Change:
    """An operator in base and in head."""

    name: str
    shapes: str
    base: Spent
    head: Spent

    @property
    def seconds(self) -> float:
        """Seconds by which it takes longer in head's call than in base's; negative if it is faster in head."""
        return self.head.seconds - self.base.seconds


def profile(spans: Sequence[Span]) -> Profile | str:
    """The profile of the faster half of the calls; if it recorded no operator, a text that says so.

    The first call does not count, as it warms the profiler up.
    """
    calls = sorted((span for span in spans if span.kind == "call"), key=lambda span: span.start)[1:]
    calls = sorted(calls, key=lambda span: span.seconds)[: math.ceil(len(calls) / 2)]
    times: list[dict[Key, float]] = [defaultdict(float) for _ in calls]
    runs: Counter[Key] = Counter()
    places: dict[Key, str] = {}
    for number, span, seconds in _exclusive(spans, calls):
        key = (_NUMBERS.sub("", span.name), span.shapes)
        times[number][key] += seconds
        runs[key] += 1
        places.setdefault(key, span.place)
    if not runs:
        return "the profiler recorded no operator"
    operators = {
        key: Spent(count / len(calls), statistics.median(each[key] for each in times), places[key])
        for key, count in runs.items()
    }
    return Profile(statistics.median(call.seconds for call in calls), operators)


def of_lines(lines: Iterable[tuple[str, str, int, float]]) -> Profile:
    """The profile of a call by its functions.

    A function's place is the line that takes most of its time.

    Args:
        lines: for each line of Python: its function, its file, its number, and its seconds in a call.
    """
    by_function: dict[Key, dict[int, float]] = defaultdict(dict)
    for function, file, number, seconds in lines:
        by_function[function, file][number] = seconds
    functions = {
        (function, file): Spent(1.0, sum(times.values()), f"{file}:{max(times, key=times.__getitem__)}" if file else "")
        for (function, file), times in by_function.items()
    }
    return Profile(sum(spent.seconds for spent in functions.values()), functions)


def changes(base: Profile, head: Profile) -> list[Change]:
    """The changes of all operators of both, the largest first."""
    nothing = Spent()
    each = [
        Change(*key, base.operators.get(key, nothing), head.operators.get(key, nothing))
        for key in dict.fromkeys((*base.operators, *head.operators))
    ]
    return sorted(each, key=lambda change: -abs(change.seconds))


def _exclusive(spans: Sequence[Span], calls: Sequence[Span]) -> Iterator[tuple[int, Span, float]]:
    """Each run of an operator within a call: the call's number, the span, and the seconds without operators in it."""
    threads: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.kind == "operator":
            threads[span.thread].append(span)
    for thread in threads.values():
        thread.sort(key=lambda span: (span.start, -span.seconds))
        exclusive = [span.seconds for span in thread]
        # Numbers of the operators that have begun and not ended, the outermost first.
        begun: list[int] = []
        for number, span in enumerate(thread):
            while begun and thread[begun[-1]].start + thread[begun[-1]].seconds <= span.start:
                begun.pop()
            if begun:
                exclusive[begun[-1]] -= span.seconds
            begun.append(number)
        for span, seconds in zip(thread, exclusive, strict=True):
            for number, call in enumerate(calls):
                if call.start <= span.start < call.start + call.seconds:
                    yield number, span, max(0.0, seconds)

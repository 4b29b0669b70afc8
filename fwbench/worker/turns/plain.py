"""Pairs of processes, one of base and one of head, that run the same plain tests, whose calls take turns."""

import contextlib
import math
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fwbench import git
from fwbench.compare.pair import Fault, Pair
from fwbench.record.measurement import Failure, FailureKind
from fwbench.record.plain import PlainTest
from fwbench.worker.client.channel import Channel
from fwbench.worker.client.conversation import Conversation
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.client.starting import STABLE_ALLOCATOR, command
from fwbench.worker.turns.rounds import PADDINGS, noise, take_turn
from fwbench.worker.turns.sides import Side, within
from fwbench.worker.turns.taken import Amounts, Taken

_SEAT = Path("plugin") / "seat.py"

# A step lasts at least so many seconds, so that reading the clock hardly counts; the warm-up at least so many, and it
# has at least so many steps, or one if a step takes longer.
_STEP, _WARM, _WARM_STEPS = 5e-5, 0.02, 3

# Turns for which a pair of processes is worth starting: so many blocks of each test, if those of all its tests then
# take no longer than so many seconds.
_MORE, _WORTH = 24, 2.0


@dataclass(frozen=True)
class Invocation:
    """A call of pytest in a folder of the user's repository, whose top folder is `top`.

    Attributes:
        options: all arguments but `places`.
        places: the files, folders and ids of tests that were named.
        imported: folders of the user's repository from which something was imported.
    """

    top: Path
    folder: Path
    options: Sequence[str]
    places: Sequence[str]
    imported: Sequence[Path]


class PlainPairs:
    """Plays pairs of plain tests.

    Args:
        called: the user's call of pytest.
        deadline: seconds after which a process that does not answer has failed.
        searching: whether a pair reports the modules of the repository that its processes have loaded.
        profiled: whether it then also reports a profile of a call.
        metered: whether the energy of a test's calls is measured.

    Attributes:
        unrepeatable: by test, the reason why it cannot take turns.
    """

    # One placing, as no program can be moved. Turns are short, and at first few, as there may be hundreds of tests.
    amounts = Amounts(placings=1, blocks=6, turn=0.005, seconds=8.0, single=0.02)

    def __init__(
        self,
        base: Side,
        head: Side,
        called: Invocation,
        deadline: float,
        *,
        searching: bool = False,
        profiled: bool = False,
        metered: Callable[[PlainTest], bool] = lambda test: False,
    ) -> None:
        self._metered = metered
        self._sides = {"base": base, "head": head}
        self._searching, self._profiled = searching, profiled
        self._called, self._deadline = called, deadline
        self._random = random.Random()
        self.unrepeatable: dict[PlainTest, str] = {}

    def play(self, tests: Sequence[PlainTest], arrived: Callable[[PlainTest, Pair | Fault], None]) -> None:
        """Play a pair of each test, all of them in one process of each side, until one of these dies."""
        left = list(tests)
        while left:
            left = left[self._share(left, arrived) :]

    def _share(self, tests: Sequence[PlainTest], arrived: Callable[[PlainTest, Pair | Fault], None]) -> int:
        """Play pairs from one pair of processes; return the number of tests played."""
        begun = time.monotonic()
        drawn = noise(self._random)
        with contextlib.ExitStack() as stack:
            seats = {
                name: stack.enter_context(self._seat(name, tests, drawn))
                for name in self._random.sample(list(self._sides), 2)
            }
            start = 0.0
            for count, test in enumerate(tests, 1):
                played = self._pair(test, seats, start, len(tests))
                if test is tests[0] and isinstance(played, Pair):
                    # The first test's own turns are few seconds beside the start of its processes.
                    start = (time.monotonic() - begun) / len(tests)
                arrived(test, played)
                if not all(seat.spoke for seat in seats.values()):
                    # A process that has come to no test at all will come to none in another try.
                    for other in tests[count:]:
                        arrived(other, played)
                    return len(tests)
                if not all(seat.alive for seat in seats.values()):
                    return count
        return len(tests)

    def _pair(self, test: PlainTest, seats: Mapping[str, "_Seat"], start: float, tests: int) -> Pair | Fault:
        """Let both sides' calls of a test take turns, in processes for so many tests.

        `start` is the pair's share of the seconds in which these started. Returns the fault of a side that did not come
        to its benchmark, or failed.
        """
        begun = time.monotonic()
        told = {name: seat.arrive(test) for name, seat in seats.items()}
        over = {name: message for name, message in told.items() if "over" in message}
        if not over:
            try:
                # One after the other, as a first call may compile, on all CPUs.
                for name in self._random.sample(list(seats), len(seats)):
                    told[name] = seats[name].ask({"first": True}, "call")
                taken = Taken(self.amounts)
                taken.described |= {name: {"settings": {}, "versions": of["versions"]} for name, of in told.items()}
                self._take_turns(seats, told, taken, tests)
                for name in self._random.sample(list(seats), 2) if self._metered(test) else ():
                    if joules := seats[name].ask({"energy": True}, "energy")["energy"]:
                        taken.once[name]["energy"] = joules
            except _OverError as error:
                name, message = error.args
                over = {name: message}
        for name, seat in seats.items():
            if name not in over and seat.alive:
                message = seat.go_on(test)
                if name == "head" or over:
                    over |= {name: message} if message["over"] != "passed" else {}
        for name in ("head", "base"):
            if name in over:
                return self._fault(test, seats[name], over)
        return taken.pair("cpu", start + time.monotonic() - begun)

    def _take_turns(
        self, seats: Mapping[str, "_Seat"], told: Mapping[str, Mapping[str, Any]], taken: Taken, tests: int
    ) -> None:
        seconds = [message["call"] for message in told.values()]
        calls = told["head"]["calls"] or max(1, math.ceil(_STEP / max(min(seconds), 1e-9)))
        step = calls * max(seconds)
        warm = 1 if step > _WARM else max(_WARM_STEPS, math.ceil(_WARM / step))
        asked = {"calls": calls, "warm": warm, "padding": [self._random.randrange(size) for size in PADDINGS]}
        order = self._random.sample(list(seats), len(seats))
        taken.plan(max(seats[name].ask(asked, "placed")["placed"] for name in order), len(seats))
        of_all = tests * 2 * len(seats) * taken.rounds * taken.latency
        taken.blocks = max(taken.blocks, min(_MORE, int(_WORTH / of_all)))
        for block in range(taken.blocks):
            for name in (*order, *reversed(order)):
                turn = take_turn(seats[name].ask, taken, {"rounds": taken.rounds}, "rounds")
                taken.turn(0, block, name, turn["rounds"][min(1, taken.rounds - 1) :], turn["cpu_time"])
        taken.once = {name: _once(message) for name, message in told.items()}
        for name, seat in seats.items() if self._searching else ():
            taken.described[name] |= seat.ask({"finish": {"profiled": self._profiled}}, "sources")

    def _fault(self, test: PlainTest, seat: "_Seat", over: Mapping[str, Mapping[str, Any]]) -> Fault:
        """The fault of a side that was over without turns, or of a head that has failed."""
        message = over[seat.name]
        said, what = message["message"], message["over"]
        said = "it does not use its benchmark" if what == "passed" else said
        if what in ("unrepeatable", "passed"):
            self.unrepeatable[test] = said
        kinds: Mapping[str, FailureKind] = {"failed": "error", "died": "crashed"}
        kind = kinds.get(what, "unavailable")
        stage, detail = "build" if seat.name == "base" else None, message.get("detail", "")
        lost = seat.name == "head" and kind == "unavailable" and test not in self.unrepeatable and "base" not in over
        return Fault(seat.name, seat.side.title, Failure(kind, said, stage, detail), lost=lost)

    @contextlib.contextmanager
    def _seat(self, name: str, tests: Sequence[PlainTest], drawn: Mapping[str, str]) -> "Iterator[_Seat]":
        side = self._sides[name]
        folder = within(side.root, self._called.top, self._called.folder)
        # Whole files, as a side may lack a test that was named.
        named = dict.fromkeys(Path(place.partition("::")[0]) for place in self._called.places)
        places = [within(side.root, self._called.top, each) if each.is_absolute() else each for each in named]
        there = [str(place) for place in places if (folder / place).exists()]
        imported = [str(within(side.root, self._called.top, entry)) for entry in self._called.imported]
        variables = {**git.unbound(os.environ), **side.variables, **drawn}
        # Matches the path of the working tree, and not of a folder beside it whose name begins alike.
        tree = re.compile(rf"{re.escape(str(self._called.top))}(?![^{re.escape(os.sep + os.pathsep)}])")

        def moved(named: str) -> str:
            return tree.sub(lambda _: str(side.root), named)

        if not any(variable.startswith(("MALLOC_", "GLIBC_TUNABLES")) for variable in variables):
            variables |= STABLE_ALLOCATOR
        paths = (*imported, moved(os.environ.get("PYTHONPATH", "")))
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        with Scratch() as scratch:
            config = {
                "tests": [test.name for test in tests],
                "arguments": [*map(moved, self._called.options), *there],
                "folder": str(folder),
                "caches": str(side.caches / "pytest"),
                "side": name,
                "tree": None if side.tree is None else str(side.tree.resolve()),
                "root": str(side.root.resolve()),
                "own": [],
            }
            variables["TMPDIR"] = str(scratch.path)
            started = command(side.python, side.package / _SEAT, package=side.package)
            with contextlib.closing(_Seat(side, started, variables, config, self._deadline)) as seat:
                yield seat


class _OverError(Exception):
    """A test that ended while it took turns: the seat's name, and the message."""


class _Seat:
    """A side's process, which runs tests one after another; `spoke` says whether it has sent a message about a test."""

    def __init__(
        self,
        side: Side,
        started: Sequence[str],
        variables: Mapping[str, str],
        config: Mapping[str, Any],
        deadline: float,
    ) -> None:
        self.side, self.name, self._deadline = side, side.name, deadline
        self.spoke = False
        self._channel = Channel(started, variables)
        self._channel.send(config)
        self._conversation = Conversation(self._channel, "its pytest")
        self._died: Mapping[str, Any] | None = None
        # Messages about tests that are not there, which come first, by test.
        self._early: dict[str, Mapping[str, Any]] = {}

    @property
    def alive(self) -> bool:
        """True if it can go on with another test."""
        return self._died is None

    def arrive(self, test: PlainTest) -> Mapping[str, Any]:
        """Wait until the test has come to its benchmark, or is over."""
        while (message := self._early.pop(test.name, None)) is None:
            received = self._receive()
            self._early[received.get("test", test.name)] = received
        return message

    def ask(self, message: Mapping[str, Any], answer: str) -> dict[str, Any]:
        """Send a message and return its answer; raise `_OverError` if the test has ended instead."""
        self._channel.send(message)
        received = self._receive()
        if "stray" in received:
            raise self.side.unseen(*received["stray"])
        if answer not in received:
            raise _OverError(self.name, received)
        return dict(received)

    def go_on(self, test: PlainTest) -> Mapping[str, Any]:
        """Let the test go on, and return its outcome."""
        self._channel.send({"go": True})
        return self.arrive(test)

    def close(self) -> None:
        """End the process."""
        self._channel.close(patience=0.0)

    def _receive(self) -> Mapping[str, Any]:
        if self._died is None:
            message = self._conversation.receive(time.monotonic() + self._deadline, self._deadline)
            if isinstance(message, dict) and "ended" not in message:
                self.spoke = True
                return message
            said = self._conversation.said().strip().rpartition("\n")[2]
            why = message.message if isinstance(message, Failure) else f"its pytest ended early ({said})"
            self._died = {"over": "died", "message": why}
        return self._died


def _once(message: Mapping[str, Any]) -> dict[str, float]:
    return {"first_call": message["first"], **({"peak_memory": message["peak"]} if message["peak"] else {})}

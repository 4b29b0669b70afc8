"""Servers that stay alive from round to round: starting one takes longer than a small program's turns.

Rounds from the same servers are nearly as independent as rounds from fresh ones, but not quite: in 2 of 40 suites the
processes of one set of servers had a speed of their own, once by a tenth (docs/method.md). So a set serves no
longer than its start is worth, and lanes, whose servers cannot swap their seats, for two rounds.
"""

import random
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Any

from fwbench.worker.turns.partner import Partner, Seat

# The most rounds from the same servers, and from those that always serve the same seat; and the most time of these
# rounds, as a multiple of the start's, or in seconds if that is longer. Further rounds get new servers, which lie
# elsewhere in memory and hash otherwise.
ROUNDS, OWN, STARTS, LEAST = 4, 2, 3.0, 3.0


class Servers:
    """Keeps servers while it is entered; before and after that none.

    A server has loaded a framework and nothing of a side's, so that it may serve either side if these have the same
    interpreter, fwbench and variables. Each round draws by lot the server of each side: so unchanged code is as likely
    to look slower as faster, whatever a server's place in memory does to the processes that it forks. Compilers' caches
    are the server's: the name of an entry covers all that it was made from.

    Args:
        swapped: whether it keeps only servers of which any can serve any seat, as a duet needs; lanes differ by more.
    """

    def __init__(self, *, swapped: bool = True) -> None:
        self._swapped = swapped
        self._entered = False
        self._partners: Collection[Partner] = ()
        self._stack = ExitStack()
        self._rounds = 0
        self._starting = self._played = 0.0

    def __enter__(self) -> "Servers":
        self._entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self._entered = False
        self._stack.close()

    def take(self, seats: Sequence[Seat], draw: random.Random, stack: ExitStack) -> dict[str, Partner]:
        """Hand over the kept servers of these seats, by name, to close with the stack; empty if none serve them."""
        kept, self._partners = self._partners, ()
        over = self._rounds >= (ROUNDS if self._swapped else OWN) or self._played > max(LEAST, STARTS * self._starting)
        left = [] if over else draw.sample(list(kept), len(kept))
        served = {}
        for seat in seats:
            if (partner := next((each for each in left if _kind(each.seat) == _kind(seat)), None)) is not None:
                left.remove(partner)
                served[seat.name] = partner
        if left or len(served) < len(seats):
            self._rounds, self._starting, self._played = 0, 0.0, 0.0
            self._stack.close()
            return {}
        stack.enter_context(self._stack.pop_all())
        for seat in seats:
            served[seat.name].seat, served[seat.name].side = seat, seat.side
        return served

    def keep(self, partners: Collection[Partner], stack: ExitStack, starting: float, played: float) -> None:
        """Keep these servers, which the stack would close, if they may serve again.

        They took `starting` seconds to start (0 if they were kept before), and have since served for `played` seconds.
        """
        self._starting += starting
        self._played += played
        first, *others = (_kind(partner.seat) for partner in partners)
        if self._entered and (not self._swapped or others.count(first) == len(others)):
            self._rounds += 1
            self._partners, self._stack = partners, stack.pop_all()


def _kind(seat: Seat) -> tuple[Any, ...]:
    """All that a seat's server is started with, except its folders."""
    side = seat.side
    of_seat = seat.lane, seat.flags, seat.cold, seat.warm
    return *of_seat, side.package, side.interpreter(seat.lane.framework), side.variables

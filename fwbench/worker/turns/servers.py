"""Servers of a duet that stay alive from pair to pair: starting one takes longer than a small program's turns."""

import random
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from fwbench.worker.turns.partner import Partner, Seat

# Rounds from the same servers. Further ones get new servers, which lie elsewhere in memory and hash otherwise.
ROUNDS = 4


class Servers:
    """Keeps servers while it is entered; before and after that none.

    A server has loaded a framework and nothing of a side's, so that it may serve either side where these have the same
    interpreter, fwbench and variables. A lot decides in each round which serves which: so unchanged code is as likely
    to look slower as faster, whatever a server's place in memory does to the processes that it forks. Compilers' caches
    are the server's: what they hold is named by all that it was made of.
    """

    def __init__(self) -> None:
        self._entered = False
        self._partners: Collection[Partner] = ()
        self._stack = ExitStack()
        self._rounds = 0

    def __enter__(self) -> "Servers":
        self._entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self._entered = False
        self._stack.close()

    def take(self, seats: Sequence[Seat], draw: random.Random, stack: ExitStack) -> dict[str, Partner]:
        """Hand over what is kept for these seats, by name, to close with the stack; empty where nothing serves them."""
        kept, self._partners = self._partners, ()
        if self._rounds >= ROUNDS or _kinds(seats) != _kinds(partner.seat for partner in kept):
            self._rounds = 0
            self._stack.close()
            return {}
        stack.enter_context(self._stack.pop_all())
        for partner, seat in zip(kept, draw.sample(seats, len(seats)), strict=True):
            partner.seat, partner.side = seat, seat.side
        return {partner.seat.name: partner for partner in kept}

    def keep(self, partners: Collection[Partner], stack: ExitStack) -> None:
        """Keep these servers, which the stack would close, if any of them can serve any of the seats."""
        first, *others = _kinds(partner.seat for partner in partners)
        if self._entered and others.count(first) == len(others):
            self._rounds += 1
            self._partners, self._stack = partners, stack.pop_all()


def _kinds(seats: Iterable[Seat]) -> list[tuple[Any, ...]]:
    """What each seat's server is started with, but for its folders."""
    return [
        (seat.lane, seat.flags, seat.side.package, seat.side.interpreter(seat.lane.framework), seat.side.variables)
        for seat in seats
    ]

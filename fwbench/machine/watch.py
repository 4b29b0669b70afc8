"""Watches the GPU's state during a measurement, and the other processes on it."""

import dataclasses
import time
from collections.abc import Callable, Collection

from fwbench.machine.disturbances import HELD, computes
from fwbench.machine.load import family
from fwbench.machine.nvml import Gpu
from fwbench.record.machine import AcceleratorProcess
from fwbench.record.measurement import Moment

# Seconds after which the utilisation no longer includes a process that has ended: it is the share of a period of a
# second at most (nvml.h, nvmlUtilization_t). And seconds between two readings meanwhile.
_PERIOD, _BETWEEN = 1.2, 0.1


class Watch:
    """Notes a GPU's state at moments of a measurement; in between it does nothing, so it disturbs nothing.

    A text in place of the GPU says why there is none, and nothing is noted. A process on the GPU at the first moment,
    before our processes use it, is somebody else's. Later the driver lists ours, too: this process and those that it
    started. In a container it may list them under unknown numbers: then the first newcomers since the first moment, as
    many as `computing`, are taken for ours. Processes `beside` are the run's, too: they have measured and wait for
    turns.
    """

    def __init__(
        self,
        gpu: Gpu | str,
        ours: Callable[[], set[int]] = family,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        computing: int = 1,
        beside: Collection[int] = (),
    ) -> None:
        self._gpu = gpu
        self._ours: Callable[[], set[int]] = lambda: ours() | {*beside}
        self._sleep = sleep
        self._first: set[int] | None = None
        self._aliases: set[int] = set()
        self._clock, self._computing = clock, computing
        # The time of the last note, and the seconds for which each reason had held the clocks down by then.
        self._last: tuple[float, dict[str, float]] = (0.0, {})
        self.moments: list[Moment] = []

    def note(self, when: str, *, timed: bool = False) -> None:
        """Note the GPU's state now, under these words; `timed`: something was timed since the moment before."""
        if isinstance(self._gpu, str):
            return
        state = self._gpu.state()
        waited = 0.0
        # The utilisation may be that of the process before this one, and the memory be held for a screen.
        while not self.moments and computes(state) and (state.used_memory or 0) > HELD and waited < _PERIOD:
            self._sleep(_BETWEEN)
            waited += _BETWEEN
            state = self._gpu.state()
        if state.processes is not None:
            others = self._others(state.processes)
            if not self.moments and state.used_memory is not None:
                # The memory of ours that wait there is nobody else's.
                ours = sum(process.memory or 0 for process in state.processes if process not in others)
                state = dataclasses.replace(state, used_memory=max(0, state.used_memory - ours))
            state = dataclasses.replace(state, processes=others)
        self.moments.append(Moment(when, state, self._held(self._gpu, timed=timed)))

    def _held(self, gpu: Gpu, *, timed: bool) -> dict[str, float]:
        then, before = self._last
        now, counted = self._last = self._clock(), gpu.held()
        if not timed or now <= then:
            return dict.fromkeys(counted, 0.0)
        # A counter may begin again from 0.
        shares = {reason: (seconds - before.get(reason, seconds)) / (now - then) for reason, seconds in counted.items()}
        return {reason: min(1.0, max(0.0, share)) for reason, share in shares.items()}

    def _others(self, running: tuple[AcceleratorProcess, ...]) -> tuple[AcceleratorProcess, ...]:
        ours = self._ours()
        others = tuple(process for process in running if process.pid not in ours)
        if self._first is None:
            self._first = {process.pid for process in others}
        if len(others) < len(running):
            return others
        newcomers = [process.pid for process in running if process.pid not in self._first | self._aliases]
        self._aliases.update(newcomers[: self._computing - len(self._aliases)])
        return tuple(process for process in running if process.pid not in self._aliases)

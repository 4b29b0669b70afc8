"""How the GPU stands while we measure, and who else is on it."""

import dataclasses
import time
from collections.abc import Callable

from fwbench.machine.disturbances import HELD, computes
from fwbench.machine.load import family
from fwbench.machine.nvml import Gpu
from fwbench.record.machine import AcceleratorProcess
from fwbench.record.measurement import Moment

# Seconds after which the utilisation tells nothing of a process that has ended before: it is the share of a period of a
# second at most (nvml.h, nvmlUtilization_t). And between two looks meanwhile.
_PERIOD, _BETWEEN = 1.2, 0.1


class Watch:
    """Notes the GPU's state at moments of a measurement; in between it does nothing, so it disturbs nothing.

    Whoever is on the GPU at the first moment, before this process uses it, is somebody else. Afterwards this process is
    one of those that the driver names. In a container it may bear a number there that nobody here knows: then one that
    has come since the first moment is taken for it.

    Args:
        gpu: that is measured; where there is none, nothing is noted.
        ours: numbers of this process and of those that it started.
        sleep: lets seconds pass.
    """

    def __init__(
        self, gpu: Gpu | str, ours: Callable[[], set[int]] = family, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._gpu = gpu
        self._ours = ours
        self._sleep = sleep
        self._first: set[int] | None = None
        self._alias: int | None = None
        self.moments: list[Moment] = []

    def note(self, when: str) -> None:
        """Note the state.

        Args:
            when: in words, for the record.
        """
        if isinstance(self._gpu, str):
            return
        state = self._gpu.state()
        waited = 0.0
        # The process before this one may have computed, while others hold memory for a screen.
        while not self.moments and computes(state) and (state.used_memory or 0) > HELD and waited < _PERIOD:
            self._sleep(_BETWEEN)
            waited += _BETWEEN
            state = self._gpu.state()
        if state.processes is not None:
            state = dataclasses.replace(state, processes=self._others(state.processes))
        self.moments.append(Moment(when, state))

    def _others(self, running: tuple[AcceleratorProcess, ...]) -> tuple[AcceleratorProcess, ...]:
        ours = self._ours()
        others = tuple(process for process in running if process.pid not in ours)
        if self._first is None:
            self._first = {process.pid for process in others}
        if len(others) < len(running):
            return others
        if self._alias is None:
            newcomers = (process.pid for process in running if process.pid not in self._first)
            self._alias = next(newcomers, None)
        return tuple(process for process in running if process.pid != self._alias)

"""The smaller batches and the fallback flags with which a workload is tried again after a failure."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from fwbench.record.lanes import LANES, Lane
from fwbench.record.measurement import Failure
from fwbench.record.workload import Workload
from fwbench.worker.client.asking import SilentError, run
from fwbench.worker.client.starting import START_DEADLINE

# Halves a batch until it fits.
OPTION = "--fwbench-set fit_batch=true"

# The stages before a lane's compiler gets its first program; None stands for a process that has begun no stage.
_UNCOMPILED = (None, "join", "data", "build")

# A lane's fallback flags: the environment variables, and what to add to each.
Flags = tuple[tuple[str, str], ...]


def compilers_fault(failure: Failure) -> bool:
    """True if the compiler failed or the process died: XLA dies if autotuning meets an illegal address.

    Compiler flags cannot help a process that died before it compiled anything.
    """
    return failure.compiler or (failure.kind == "crashed" and failure.stage not in _UNCOMPILED)


def milder(lane: Lane, python: str, variables: Mapping[str, str]) -> Iterator[Flags]:
    """Combinations of a lane's fallback flags, each longer than the last, of those that its framework knows."""
    taken: Flags = ()
    for flag in lane.fallback:
        if _known(lane, python, added(variables, (flag,))):
            taken = (*taken, flag)
            yield taken


def added(variables: Mapping[str, str], flags: Flags) -> dict[str, str]:
    """Environment variables with fallback flags added."""
    environment = dict(variables)
    for name, value in flags:
        environment[name] = f"{environment.get(name, '')} {value}".strip()
    return environment


def stated(flags: Flags) -> str:
    """Fallback flags as a shell would set them, `NAME=value value`."""
    return " ".join(f"{name}={value}" for name, value in added({}, flags).items())


def _known(lane: Lane, python: str, variables: Mapping[str, str]) -> bool:
    try:
        return run([python, "-P", "-c", lane.trial], START_DEADLINE, environment=variables).returncode == 0
    except (SilentError, OSError):
        return False


class Ladder:
    """The needs of each workload, as failures have shown them; its replicates begin with what an earlier one needed.

    Another workload begins with its whole batch and without flags: these slow programs, and one crash says nothing
    about another.

    Args:
        rungs: returns the combinations of fallback flags for a lane, each longer than the last; asked once.
        fit_batch: whether a batch that does not fit into memory is halved until it does.
    """

    def __init__(self, rungs: Callable[[Lane], Iterable[Flags]] = lambda lane: (), *, fit_batch: bool = False) -> None:
        self._find, self._fit_batch = rungs, fit_batch
        self._rungs: dict[str, list[Flags]] = {}
        # By workload: its flags, with the failure without any; and the batches that did not fit.
        self._needed: dict[Workload, tuple[Flags, str]] = {}
        self._unfit: dict[Workload, tuple[int, ...]] = {}

    def flags(self, workload: Workload) -> tuple[Flags, str]:
        """The fallback flags that a workload needs, and in one sentence why."""
        flags, why = self._needed.get(workload, ((), ""))
        return flags, f"{why}, so it was run again with {stated(flags)}"

    def climb(self, workload: Workload, failure: Failure) -> bool:
        """Take the next longer combination of flags, after a failure of the compiler; return whether there is one."""
        lane = LANES[workload.lane]
        if lane.name not in self._rungs:
            self._rungs[lane.name] = list(self._find(lane))
        needed, why = self._needed.get(workload, ((), failure.message))
        more = [flags for flags in self._rungs[lane.name] if len(flags) > len(needed)]
        if more:
            self._needed[workload] = more[0], why
        return bool(more)

    def unfit(self, workload: Workload) -> tuple[int, ...]:
        """The batches of a workload that did not fit into memory, and were halved."""
        return self._unfit.get(workload, ())

    def tried(self, workload: Workload) -> tuple[int, ...]:
        """The batches of a workload that were tried, down to the present one; empty if none is to be halved."""
        unfit = self.unfit(workload)
        return (*unfit, workload.fitted(unfit).batch_size) if self._fit_batch else ()

    def shrink(self, workload: Workload, failure: Failure) -> bool:
        """Take half the batch if memory ran out, and if that is asked for and possible; return whether it was done."""
        tried = self.tried(workload)
        if not tried or failure.kind != "out_of_memory" or workload.fitted(self.unfit(workload)).halved() is None:
            return False
        self._unfit[workload] = tried
        return True

    def advised(self, workload: Workload, failure: Failure) -> Failure:
        """The failure of the last try; where memory ran out, with the batches that were tried, or the next step."""
        message = failure.message
        if failure.kind != "out_of_memory":
            return failure
        if tried := self.tried(workload):
            every = f"no batch fits into memory, of those that were tried ({', '.join(map(str, tried))})"
            message = f"{every if len(tried) > 1 else 'no smaller batch'}; at batch {tried[-1]}: {message}"
        elif workload.halved() is not None:
            message += f"; choose a smaller batch than {workload.batch_size}, or let {OPTION} halve it until it fits"
        return dataclasses.replace(failure, message=message)

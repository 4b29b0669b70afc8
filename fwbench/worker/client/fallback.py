"""A lane's fallback flags: the combinations that its framework knows, and their wording in messages."""

from collections.abc import Iterator, Mapping

from fwbench.record.lanes import Lane
from fwbench.record.measurement import Failure
from fwbench.worker.client.asking import SilentError, run
from fwbench.worker.client.starting import START_DEADLINE

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

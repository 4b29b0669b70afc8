"""pytest's side of a workload over several devices: starts the launcher, follows the ranks, describes failures."""

import dataclasses
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fwbench.errors import UserError
from fwbench.ext.cluster.ranks.star import (
    COORDINATOR,
    DEADLINE,
    JOB,
    KEY,
    LOST,
    TOLD,
    Place,
    RankError,
    free_port,
    place,
)
from fwbench.machine import machine
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.workload import Workload
from fwbench.worker.client.channel import Channel
from fwbench.worker.client.conversation import Conversation
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.client.server import END_DEADLINE, KILL_DEADLINE
from fwbench.worker.client.starting import START_DEADLINE, allocated, command, environment

_LAUNCHER, _RANK = (Path(__file__).with_name(f"{name}.py") for name in ("launcher", "rank"))


def launch(
    workload: Workload,
    job: Mapping[str, Any],
    python: str,
    variables: Mapping[str, str],
    cpus: Sequence[int],
    tell: Callable[[str], None],
) -> Measurement:
    """Measure a workload in one process per device; its lane's launcher, or srun, starts them.

    Args:
        job: as `Workers.job` makes it.
        variables: the environment of the launcher and all ranks.
        cpus: those of all ranks, where they are on this host.

    Raises:
        UserError: nothing can be started, or there is no room for temporary files.
    """
    slurm = allocated(os.environ)
    config = {
        "launcher": "srun" if slurm else LANES[workload.lane].launcher,
        "command": command(python, _RANK),
        "size": workload.devices,
        "cpus": () if slurm else cpus,
    }
    variables = {KEY: uuid.uuid4().hex, **variables}
    if COORDINATOR not in variables and not slurm:
        # gloo would look up this host's name and then listen on all network interfaces.
        nearby = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
        variables = {**nearby, **variables, COORDINATOR: f"127.0.0.1:{free_port()}"}
    launcher = command(python, _LAUNCHER, json.dumps(config))
    return _measured(launcher, variables, workload, {**job, "threads": slurm}, tell)


def here() -> Place | None:
    """This process's place among ranks that somebody else has started; None: it is no rank.

    Raises:
        UserError: the environment has a part of a place.
    """
    try:
        return place(os.environ)
    except RankError as error:
        raise UserError(f"{error}.") from None


def take_part(own: Place, workload: Workload, job: Mapping[str, Any], tell: Callable[[str], None]) -> Measurement:
    """Measure a workload as one of the ranks that somebody else has started, at this process's place.

    If it is not the first rank and has done its part, the measurement has no numbers.

    Args:
        job: as `Workers.job` makes it.

    Raises:
        UserError: as `launch`.
    """
    variables = environment(os.environ, machine().threads, workload.device, LANES[workload.lane], None)
    return _measured(command(sys.executable, _RANK), variables, workload, {**job, "threads": True}, tell, own.rank)


def _measured(
    started: Sequence[str],
    variables: Mapping[str, str],
    workload: Workload,
    job: Mapping[str, Any],
    tell: Callable[[str], None],
    rank: int | None = None,
) -> Measurement:
    """Start a command, the launcher or one rank, and return the measurement when all that it started has ended.

    The job has `threads`, too: whether a rank chooses its number of threads by its CPUs.
    """
    # A rank shares the machine with the others.
    message = {**job, "facts": None, "lane": LANES[workload.lane].to_json(), "joining": DEADLINE}
    with Scratch() as scratch:
        try:
            channel = Channel(started, {**variables, JOB: json.dumps(message), "TMPDIR": str(scratch.path)})
        except OSError as error:
            failure = Failure("crashed", f"the ranks cannot be started with {started[0]} ({error})")
            return Measurement(workload, failure=failure)
        try:
            limit = job["protocol"]["deadline"] + job["patience"]
            return _converse(_Ranks(channel, workload.devices, tell), workload, limit, rank)
        finally:
            # Ctrl-C, a bug of fwbench, or a rank that does not end: leave nothing running.
            channel.kill()
            channel.close(patience=KILL_DEADLINE)


def _converse(conversation: "_Ranks", workload: Workload, limit: float, own: int | None) -> Measurement:
    """The ranks' measurement; they have `limit` seconds from the moment at which all have come."""
    measurement: Measurement | None = None
    failure: Failure | None = None
    # Only the first rank reports when all have joined.
    deadline = conversation.asked + START_DEADLINE + (limit if own else 0.0)
    given = START_DEADLINE
    while not isinstance(answer := conversation.receive(deadline, given), Failure) and "ended" not in answer:
        if "ranks" in answer:
            conversation.joined(answer["ranks"])
            deadline, given = time.monotonic() + limit, limit
        elif "failure" in answer:
            # The first rank to fail knows the reason; the others fail because they lose it.
            failure = failure or _of_rank(answer, workload.devices)
            deadline = min(deadline, time.monotonic() + END_DEADLINE)
        elif "measurement" in answer:
            measurement = answer["measurement"]
            deadline = time.monotonic() + END_DEADLINE
    if measurement is not None:
        return conversation.timed(measurement)
    codes: dict[int, int] = {}
    if not isinstance(answer, Failure):
        codes = {int(rank): code for rank, code in answer["ended"].items()}
    elif conversation.code is not None and own is not None:
        codes = {own: conversation.code}
    if isinstance(answer, dict) or codes:
        sentence = "another rank is gone, whose own launcher says why"
        answer = Failure("crashed", sentence, conversation.stage, conversation.said())
    if own and codes == {own: 0}:
        return Measurement(workload)
    if ended := first_ended(codes):
        rank, code = ended
        failure = conversation.died(code, f"rank {rank} of {workload.devices}")
    return Measurement(workload, failure=failure or answer)


class _Ranks(Conversation):
    """The messages of one workload's ranks, `size` in number, and of their launcher."""

    def __init__(self, channel: Channel, size: int, tell: Callable[[str], None]) -> None:
        super().__init__(channel, "the ranks' launcher", tell)
        self._size = size
        self._pids: dict[int, int] = {}

    def joined(self, ranks: Sequence[Mapping[str, Any]]) -> None:
        """Note that all ranks have come, and the processes of those on this host."""
        here = os.uname().nodename if hasattr(os, "uname") else None
        self._pids = {rank["rank"]: rank["pid"] for rank in ranks if rank["host"] == here}
        self.started = time.monotonic()

    def late(self, limit: float) -> Failure:
        """Describe ranks that have not come, or not answered, within so many seconds."""
        if self.started is None:
            sentence = f"not all of the {self._size} ranks were there within {limit:g} s; they were killed"
            return Failure("timed_out", sentence, self.stage, self.said())
        said, places, texts = self.said(), [], []
        for rank, pid in self._pids.items():
            stacks = self._channel.stacks(pid)
            places.append(f"rank {rank} {stacks.place or 'did not tell where it was'}")
            texts.append(f"Rank {rank}:\n{stacks.text}")
        during = f"during {self.stage}" if self.stage else "before their first stage"
        killed = f"the ranks were killed {during}: {'; '.join(places)}"
        sentence = f"no result within the deadline of {limit:.4g} s; {killed}"
        return Failure("timed_out", sentence, self.stage, "\n".join([said.strip(), *texts]).strip())


def first_ended(codes: Mapping[int, int]) -> tuple[int, int] | None:
    """Number and exit code of the rank that ended first, by itself and without a reason."""
    # A launcher ends the other ranks by SIGTERM. A killed rank ended before ranks that noticed its death.
    by_launcher = -signal.SIGTERM if any(code not in (0, -signal.SIGTERM) for code in codes.values()) else 0
    for rank, code in sorted(codes.items(), key=lambda item: (item[1] > 0, item[0])):
        if code not in (0, TOLD, LOST, by_launcher):
            return rank, code
    return None


def _of_rank(message: Mapping[str, Any], size: int) -> Failure:
    failure = Failure(**message["failure"])
    if not message["rank"]:
        return failure
    return dataclasses.replace(failure, message=f"rank {message['rank']} of {size}: {failure.message}")

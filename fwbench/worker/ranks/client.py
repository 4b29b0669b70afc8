"""pytest's side of a workload over several devices: starts the launcher, follows the ranks, describes failures."""

import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fwbench.record.lanes import LANES
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.workload import Workload
from fwbench.worker.client.channel import Channel
from fwbench.worker.client.conversation import Conversation
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.client.server import END_DEADLINE, KILL_DEADLINE
from fwbench.worker.client.starting import START_DEADLINE
from fwbench.worker.ranks.star import DEADLINE, JOB, LOST, TOLD


def measure(
    command: Sequence[str],
    environment: Mapping[str, str],
    workload: Workload,
    job: Mapping[str, Any],
    tell: Callable[[str], None],
    rank: int | None = None,
) -> Measurement:
    """Measure a workload in ranks, whose launcher this command starts; return when all of them have ended.

    Args:
        environment: of the launcher and all ranks.
        job: as `Workers.job` makes it, with `threads`: whether a rank chooses its number of threads by its CPUs.
        rank: the command is the rank of this number, one of several that somebody else has started. If it is not the
            first and has done its part, the measurement has no numbers.

    Raises:
        UserError: nothing can be started, or there is no room for temporary files.
    """
    # A rank shares the machine with the others.
    message = {**job, "facts": None, "lane": LANES[workload.lane].to_json(), "joining": DEADLINE}
    with Scratch() as scratch:
        variables = {**environment, JOB: json.dumps(message), "TMPDIR": str(scratch.path)}
        try:
            channel = Channel(command, variables)
        except OSError as error:
            failure = Failure("crashed", f"the ranks cannot be started with {command[0]} ({error})")
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

"""pytest's side of a workload over several devices: start the launcher, follow the ranks, say how they failed."""

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fwbench.record.measurement import Failure, Measurement
from fwbench.record.workload import Workload
from fwbench.worker.channel import Channel, GarbledError, crashed
from fwbench.worker.ranks import LOST, TOLD
from fwbench.worker.scratch import Scratch

# Seconds for the launcher to start, and then for all ranks to join.
START_DEADLINE = 180.0
# Seconds for the other ranks to end after one has failed or the record has arrived, and after they were killed.
END_DEADLINE = 30.0
KILL_DEADLINE = 10.0


class Launched:
    """The ranks of one workload, and their launcher.

    Args:
        command: of the launcher.
        environment: of all ranks.
        rank: where the command is one rank of several that somebody else has started: its number.

    Raises:
        OSError: the launcher cannot be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], rank: int | None = None) -> None:
        self._rank = rank
        self._scratch = Scratch()
        try:
            self._channel = Channel(command, {**environment, "TMPDIR": str(self._scratch.path)})
        except OSError:
            self._scratch.close()
            raise
        # The processes of the ranks on this host.
        self._pids: dict[int, int] = {}
        self._stage: str | None = None

    def measure(self, workload: Workload, limit: float, tell: Callable[[str], None]) -> Measurement:
        """The ranks' measurement; returns when all of them have ended.

        Args:
            limit: seconds from the moment at which all ranks have come.

        Returns:
            A measurement; one without numbers on a rank that is not the first and has done its part.
        """
        try:
            return self._converse(workload, limit, tell)
        finally:
            # Ctrl-C, a bug of fwbench, or a rank that does not end: leave nothing running.
            self._channel.kill()
            self._channel.close(patience=KILL_DEADLINE)
            self._scratch.close()

    def _converse(self, workload: Workload, limit: float, tell: Callable[[str], None]) -> Measurement:
        asked = time.monotonic()
        # Only the first rank reports when all have joined.
        deadline = asked + START_DEADLINE + (limit if self._rank else 0.0)
        measurement: Measurement | None = None
        failure: Failure | None = None
        codes: dict[int, int] = {}
        started: float | None = None
        while True:
            try:
                message = self._channel.receive(deadline)
            except TimeoutError:
                if measurement is None and failure is None:
                    failure = self._late(workload, limit if started else START_DEADLINE)
                break
            except GarbledError as error:
                failure = failure or Failure(
                    "crashed", f"what a rank sent is no message: {error}; all were killed", self._stage
                )
                break
            if message is None and self._rank is not None:
                codes = {self._rank: self._channel.wait()}
                break
            if message is None or "ended" in message:
                codes = {int(rank): code for rank, code in (message or {}).get("ended", {}).items()}
                break
            if "ranks" in message:
                here = os.uname().nodename if hasattr(os, "uname") else None
                self._pids = {each["rank"]: each["pid"] for each in message["ranks"] if each["host"] == here}
                started = time.monotonic()
                deadline = started + limit
            elif "stage" in message:
                self._stage = message["stage"]
                tell(message["stage"])
            elif "failure" in message:
                # The first rank to fail knows the reason; the others fail because they lose it.
                failure = failure or _of_rank(message, workload.devices)
                deadline = min(deadline, time.monotonic() + END_DEADLINE)
            elif "measurement" in message:
                measurement = measurement_of(message["measurement"])
                deadline = time.monotonic() + END_DEADLINE
        if measurement is not None:
            return dataclasses.replace(
                measurement,
                overhead_s=time.monotonic() - asked - sum(measurement.stages.values()),
                start_s=None if started is None else started - asked,
            )
        if self._rank and codes == {self._rank: 0}:
            return Measurement(workload)
        return Measurement(workload, failure=self._ended(codes, workload.devices) or failure or self._unsaid(codes))

    def _ended(self, codes: Mapping[int, int], size: int) -> Failure | None:
        """The first rank that a signal ended or that ended without a message."""
        ended = first_ended(codes)
        if ended is None:
            return None
        rank, code = ended
        return crashed(code, self._stage, self._channel.said(), f"rank {rank} of {size}")

    def _unsaid(self, codes: Mapping[int, int]) -> Failure:
        """The failure if no rank has sent a message, as when the launcher itself failed."""
        said = self._channel.said()
        if not codes:
            return crashed(self._channel.wait(), self._stage, said, "the ranks' launcher")
        return Failure("crashed", "another rank is gone, whose own launcher says why", self._stage, said)

    def _late(self, workload: Workload, limit: float) -> Failure:
        """Describe ranks that have not answered in time."""
        if not self._pids:
            sentence = f"not all of the {workload.devices} ranks were there within {limit:g} s; they were killed"
            return Failure("timed_out", sentence, self._stage, self._channel.said())
        said, told, texts = self._channel.said(), [], []
        for rank, pid in self._pids.items():
            stacks = self._channel.stacks(pid)
            told.append(f"rank {rank} {stacks.place or 'did not tell where it was'}")
            texts.append(f"Rank {rank}:\n{stacks.text}")
        during = f"during {self._stage}" if self._stage else "before their first stage"
        sentence = f"no result within the deadline of {limit:g} s; the ranks were killed {during}: {'; '.join(told)}"
        return Failure("timed_out", sentence, self._stage, "\n".join([said.strip(), *texts]).strip())


def first_ended(codes: Mapping[int, int]) -> tuple[int, int] | None:
    """Number and exit code of the rank that ended first, by itself and without a reason."""
    # A launcher ends the other ranks by SIGTERM. A killed rank ended before ranks that noticed its death.
    by_launcher = -signal.SIGTERM if any(code not in (0, -signal.SIGTERM) for code in codes.values()) else 0
    for rank, code in sorted(codes.items(), key=lambda item: (item[1] > 0, item[0])):
        if code not in (0, TOLD, LOST, by_launcher):
            return rank, code
    return None


def measurement_of(data: Mapping[str, Any]) -> Measurement:
    """The measurement in a worker's message.

    Raises:
        GarbledError: it holds none.
    """
    try:
        return Measurement.from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GarbledError(f"a measurement without its parts ({type(error).__name__}: {error})") from error


def _of_rank(message: Mapping[str, Any], size: int) -> Failure:
    failure = Failure(**message["failure"])
    if not message["rank"]:
        return failure
    return dataclasses.replace(failure, message=f"rank {message['rank']} of {size}: {failure.message}")

"""Processes that read samples ahead of the consumer, straight into memory that both sides share.

    consumer                                  loader (one of n)
       | -- (pass, slot, row, ..., indices) --> |      a part of a batch, sent `prefetch` batches ahead
       |                                        | reads the samples into the slot's rows
       | <-- None, or a failure's sentence ---- |      in the order of asking
       | copies the slot out, asks for the next batch in it

Each loader has a pipe of its own and no lock is shared. So if one side is killed, the other sees the end of the pipe:
the consumer then raises, a loader then exits.
"""

import itertools
import math
import multiprocessing
import pickle
import signal
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import c_longlong
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.ext.epochs.data.contract import DataError, Images, Indices, Plan, Samples

# Reads a sample by its split, the epoch and its index: float32 of the model's input shape. It raises a DataError that
# names the file or row where that cannot be read, and is pickled on its way to a loader.
Reader = Callable[[str, int, int], NDArray[np.float32]]


@dataclass(frozen=True)
class _Loader:
    process: SpawnProcess
    connection: "Connection[Any, Any]"


@dataclass(frozen=True)
class _Batch:
    """A batch that loaders work on: its slot, its number of samples, and the loaders that have yet to answer."""

    slot: int
    size: int
    owing: deque[_Loader]


class Loaders:
    """A set of loader processes for batches of one size, and the shared memory they fill.

    They start by `spawn`: the consumer runs threads of a framework, which no fork survives.

    Args:
        name: of the data, for error messages.
        read: reads a sample.
        processes: their number, at least 1.
        shape: of a whole batch.
        prefetch: batches asked for ahead, at least 1; each holds a batch's bytes.
    """

    def __init__(self, name: str, read: Reader, processes: int, shape: tuple[int, ...], prefetch: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.batch_size = shape[0]
        self.closed = False
        self._name = name
        memory = [context.RawArray("f", math.prod(shape)) for _ in range(prefetch)]
        self._slots = _views(memory, shape)
        # The number of the pass: loaders skip requests of earlier passes.
        self._pass = context.RawValue(c_longlong)
        self._loaders = []
        for _ in range(processes):
            here, there = context.Pipe()
            # A daemon, so that an interpreter that ends without `close` kills the process instead of waiting for it.
            process = context.Process(
                target=_serve, args=(there, read, memory, shape, self._pass), name="fwbench-loader", daemon=True
            )
            process.start()
            # The loader's end must be open nowhere else, or its death would go unnoticed.
            there.close()
            self._loaders.append(_Loader(process, here))
        # Samples requested from loaders, in all passes.
        self._given_out = 0

    def images(self, split: str, epoch: int, plan: Plan) -> Samples:
        """The samples of each entry of the plan, in its order: float32 of shape (len(entry), ...).

        Raises:
            DataError: a sample cannot be read, a loader died, or `close` was called meanwhile.
        """
        entries = iter(plan)
        pending: deque[_Batch] = deque()
        self._pass.value += 1
        try:
            # The slots come first: zip would take an entry and lose it when no slot is left.
            for slot, indices in zip(range(len(self._slots)), entries):  # noqa: B905 (the shorter one ends it)
                self._ask(pending, slot, split, epoch, indices)
            while pending:
                batch = pending[0]
                while batch.owing:
                    failure = self._answer(batch.owing.popleft())
                    if failure:
                        raise DataError(failure)
                pending.popleft()
                x = self._slots[batch.slot][: batch.size].copy()
                for indices in itertools.islice(entries, 1):
                    self._ask(pending, batch.slot, split, epoch, indices)
                yield x
        finally:
            self._pass.value += 1
            # The next pass uses the slots, so nothing may still write to them. If a loader dies here, all are closed.
            with suppress(DataError):
                for loader in itertools.chain.from_iterable(batch.owing for batch in pending):
                    self._answer(loader)

    def close(self) -> None:
        """Kill the processes at once; a second call does nothing."""
        self.closed = True
        # Killed rather than asked: they hold nothing that could be lost, and a stuck one would not answer.
        for loader in self._loaders:
            loader.process.kill()
        for loader in self._loaders:
            loader.process.join()

    def _ask(self, pending: deque[_Batch], slot: int, split: str, epoch: int, indices: Indices) -> None:
        batch = _Batch(slot, len(indices), deque())
        pending.append(batch)
        row = 0
        parts = np.array_split(indices, min(len(self._loaders), len(indices)))
        for number, part in enumerate(parts, self._given_out):
            # The turns go on from batch to batch, so that all loaders read equally much whatever the batches' size.
            loader = self._loaders[number % len(self._loaders)]
            # Not `send`: if the loader is gone, its traceback would hold a buffer, about whose collection Python
            # complains.
            asked = pickle.dumps((self._pass.value, slot, row, split, epoch, part))
            try:
                loader.connection.send_bytes(asked)
            except OSError as error:
                raise self._lost(loader) from error
            batch.owing.append(loader)
            row += len(part)
        self._given_out += len(indices)

    def _answer(self, loader: _Loader) -> str | None:
        if self.closed:
            # Earlier answers may still lie in the pipe.
            raise self._lost(loader)
        try:
            failure: str | None = loader.connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost(loader) from error
        return failure

    def _lost(self, loader: _Loader) -> DataError:
        if self.closed:
            return DataError(f"{self._name} was closed while its batches were still being read: close it afterwards")
        loader.process.join(timeout=5)
        code = loader.process.exitcode
        self.close()
        how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
        return DataError(
            f"{self._name}: a loader process {how}; its error output or the system's log of out-of-memory kills says "
            "why, and with fewer loader processes it may pass"
        )


def _serve(
    connection: "Connection[Any, Any]", read: Reader, memory: Sequence[Any], shape: tuple[int, ...], current_pass: Any
) -> None:
    # A terminal sends Ctrl-C to all processes; the consumer decides when loaders end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    slots = _views(memory, shape)
    # The consumer has closed its end of the pipe, so it is gone.
    with suppress(EOFError, ConnectionError):
        while True:
            of_pass, slot, first, split, epoch, indices = connection.recv()
            failure = None
            try:
                for row, index in enumerate(indices.tolist(), first):
                    if of_pass != current_pass.value:
                        break
                    slots[slot][row] = read(split, epoch, index)
            except DataError as error:
                failure = str(error)
            connection.send(failure)


def _views(memory: Sequence[Any], shape: tuple[int, ...]) -> list[Images]:
    return [np.frombuffer(slot, np.float32).reshape(shape) for slot in memory]

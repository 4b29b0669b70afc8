"""Readers for the loaders' tests: samples of two numbers, (epoch, index), and what goes wrong on the way to them.

Loader processes import them from here.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fwbench.ext.epochs.data import DataError


@dataclass(frozen=True)
class Numbers:
    """Reads (epoch, index); leaves a file of that name in `folder`, when there is one."""

    folder: Path | None = None

    def __call__(self, split, epoch, index):
        if self.folder:
            (self.folder / f"{split}-{epoch}-{index}").touch()
        return np.array([epoch, index], np.float32)


@dataclass(frozen=True)
class Signed(Numbers):
    """Reads (who reads, index)."""

    def __call__(self, split, epoch, index):
        return np.array([os.getpid(), index], np.float32)


@dataclass(frozen=True)
class Broken(Numbers):
    """Cannot read one index of the split `broken`."""

    index: int = 0

    def __call__(self, split, epoch, index):
        if (split, index) == ("broken", self.index):
            raise DataError(f"row {index} cannot be read")
        return super().__call__(split, epoch, index)


@dataclass(frozen=True)
class Mortal(Numbers):
    """Its process ends at index 5: exits with `code`, or is killed when that is 0."""

    code: int = 0

    def __call__(self, split, epoch, index):
        if index == 5:
            if self.code:
                os._exit(self.code)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(split, epoch, index)


@dataclass(frozen=True)
class Stuck(Numbers):
    """Never comes back from index 5."""

    def __call__(self, split, epoch, index):
        result = super().__call__(split, epoch, index)
        while index == 5:
            time.sleep(60)
        return result


@dataclass(frozen=True)
class Slow(Numbers):
    """Takes a while after index 0 of the split `slow`, so that whoever leaves then leaves work behind."""

    def __call__(self, split, epoch, index):
        if split == "slow" and index:
            time.sleep(0.02)
        return super().__call__(split, epoch, index)

"""Networks of the plain lane with a fault each, which shows at their first call; before it they tell that they came so
far: by a file that the environment names.
"""

import asyncio
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from plain_lane import Plain


class Net:
    """One without a fault."""

    def __init__(self):
        self.operators = {}

    def __call__(self):
        return 1.0


def come():
    """Tell that the fault is next."""
    Path(os.environ["FAULT_COMES"]).touch()


def hang():
    come()
    while True:
        time.sleep(60)


def pipe():
    """The descriptor of the pipe to the client."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and os.path.exists(f"/proc/self/fd/{name}"):
            writes = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
            if writes and os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                return descriptor
    raise LookupError


def sleeper(**options):
    """A process that does nothing for an hour."""
    return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"], **options)


class Hangs(Net):
    def __call__(self):
        hang()


class IgnoresSigterm(Net):
    def __call__(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hang()


class HangsInC(Net):
    """Which holds the interpreter's lock."""

    def __call__(self):
        come()
        ctypes.PyDLL(None).sleep(3600)


class Greedy(Net):
    """It asks for 64 MiB a sample; a batch of 7 aborts."""

    def __call__(self):
        with Path(os.environ["FAULT_COMES"]).open("a") as processes:
            print(os.getpid(), file=processes)
        if self.batch_size == 7:
            # As C++ ends a process in which nothing catches it.
            os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
            os.abort()
        # No page of it is ever touched.
        np.empty(self.batch_size << 26, np.uint8)
        return 1.0


class BlocksSignals(Net):
    def __call__(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        hang()


class Stops(Net):
    def __call__(self):
        come()
        os.kill(os.getpid(), signal.SIGSTOP)


class WaitsInTheKernel(Net):
    """As on a disk that does not answer: in state D, until the child ends that shares its memory."""

    def __call__(self):
        come()
        libc = ctypes.PyDLL(None)
        if libc.vfork() == 0:
            libc.sleep(3600)


class WritesGarbage(Net):
    def __call__(self):
        os.write(pipe(), b"Segmentation faults are fun\n")
        hang()


class WritesHalfALine(Net):
    def __call__(self):
        os.write(pipe(), b'{"measurement": {"samp')
        os._exit(3)


class WritesForEver(Net):
    def __call__(self):
        while True:
            os.write(pipe(), bytes(1 << 16))


class SendsAnotherRecord(Net):
    def __call__(self):
        os.write(pipe(), b'{"measurement": {"samples": []}}\n')
        hang()


class ClosesThePipe(Net):
    def __call__(self):
        os.close(pipe())
        return 1.0


class ExitsWith0(Net):
    def __call__(self):
        os._exit(0)


class FloodsStandardError(Net):
    def __call__(self):
        come()
        while True:
            os.write(2, b"warning: this is fine\n" * 1000)


class Helped(Net):
    """It leaves processes behind: one in its group, one in a session of its own, and one whose parent has ended."""

    def __call__(self):
        sleeper()
        sleeper(start_new_session=True)
        subprocess.run([sys.executable, "-S", "-c", _ORPHAN], check=True)
        return 1.0


_ORPHAN = """
import subprocess, sys
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"], start_new_session=True)
"""


class HelpedAndHangs(Helped):
    def __call__(self):
        super().__call__()
        hang()


class LeavesFilesAndHangs(Net):
    def __call__(self):
        folder = Path(tempfile.mkdtemp())
        folder.joinpath("file").touch()
        folder.joinpath("link").symlink_to(os.environ["FAULT_COMES"])
        tempfile.mkstemp()
        hang()


class HangsAtItsEnd(Net):
    """After its record is sent standard error is flushed."""

    def __call__(self):
        sys.stderr.flush = hang
        return 1.0


class Preloading(Plain):
    """A framework that never comes to an end of being imported."""

    def preload(self, lane):
        hang()


FRAMEWORK = Preloading()


def of_the_second_rank():
    """Whether this process is that; each waits until the other computes, as for what a network exchanges."""
    first = Path(tempfile.gettempdir()) / f"first-rank-of-{os.getppid()}"
    if os.environ["FWBENCH_RANK"] == "1":
        while not first.exists():
            time.sleep(0.01)
        return True
    first.touch()
    time.sleep(3600)
    return False


class SecondRankIsKilled(Net):
    def __call__(self):
        if of_the_second_rank():
            sleeper(start_new_session=True)
            os.kill(os.getpid(), signal.SIGKILL)


class SecondRankStops(Stops):
    def __call__(self):
        if of_the_second_rank():
            super().__call__()


class SecondRankRaises(Net):
    def __call__(self):
        if of_the_second_rank():
            raise RuntimeError("this batch is cursed")


class SecondRankExits(Net):
    def __call__(self):
        if of_the_second_rank():
            os._exit(3)


class Raises(Net):
    """Raises what ends a process: as it is built, at its first call, or at a later one."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self._raise("built")

    def __call__(self):
        self.calls += 1
        self._raise("called" if self.calls == 1 else "called again" if self.calls == 3 else "")
        return 1.0

    def _raise(self, when):
        if self.when == when:
            raise self.raised


class Leave(BaseException):
    """One of the user's own."""


RAISED = {
    "KeyboardInterrupt": KeyboardInterrupt(),
    "SystemExit: 0": SystemExit(0),
    "SystemExit: done": SystemExit("done"),
    "GeneratorExit": GeneratorExit(),
    "CancelledError": asyncio.CancelledError(),
    "Leave: now": Leave("now"),
}
# A network for each, such as `Raises3Called`: the fourth, at the first call.
RAISING = {
    (raised, when): f"Raises{number}{when.title().replace(' ', '')}"
    for number, raised in enumerate(RAISED)
    for when in ("built", "called", "called again")
}
for (_raised, _when), _name in RAISING.items():
    globals()[_name] = type(_name, (Raises,), {"raised": RAISED[_raised], "when": _when})


class Interrupted(Net):
    """A true SIGINT to its own process."""

    def __call__(self):
        os.kill(os.getpid(), signal.SIGINT)
        hang()

"""How our processes end: with whoever started them, together with all that they started themselves, and never silently.

`start` loads this file before all else, under any interpreter and beside any fwbench, so it uses the standard library
alone. What only Linux has is left out elsewhere: there a process notices by its closed pipe that its client is gone.
"""

import ctypes
import faulthandler
import os
import select
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

# Of prctl(2): a signal to be had when the parent dies; to be given the orphans among one's descendants.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def begin() -> None:
    """End with the parent, and write all threads' stacks to standard error at SIGUSR1, also from within native code."""
    _tell_stacks()
    if sys.platform != "win32":
        _end_with_parent(signal.SIGKILL)


def end_if_closed(pipe: int) -> None:
    """End this process where the other end of its pipe is closed: the client died before it could be followed."""
    if hasattr(select, "poll") and _closed(pipe, 0):
        os._exit(1)


def end_when_closed(pipe: int) -> None:
    """End this process and its group as soon as the other end of its pipe is closed; for systems that do not fork."""

    def watch() -> None:
        if _closed(pipe, None):
            os.killpg(0, signal.SIGKILL)

    if hasattr(select, "poll"):
        threading.Thread(target=watch, daemon=True).start()


class Keeper:
    """Runs jobs in processes of their own, one after another, and lets none of them leave anything behind.

    A job has a process group. What it started in groups and sessions of their own comes back to the keeper as orphans.
    When the client is gone, the keeper ends the job and itself.

    Args:
        pipe: descriptor of the pipe from the client, which stays open for as long as the client lives.
        scratch: folder of temporary files, for these jobs alone.
    """

    def __init__(self, pipe: int, scratch: str) -> None:
        self._pipe = pipe
        self._scratch = scratch
        self._job = 0
        # What there was before the job: neither these children nor these files are its own.
        self._children: set[int] = set()
        self._files: set[str] = set()
        # Not SIGKILL any more: a keeper that is killed cannot end what its job has started.
        signal.signal(signal.SIGTERM, self._end)
        faulthandler.unregister(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, self._ask)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _end_with_parent(signal.SIGTERM)

    def run(self, job: Callable[[], None]) -> int:
        """Run a job to its end.

        Returns:
            The exit code of its process; a signal's number, negated, where one ended it.
        """
        self._children, self._files = _children(), self._listed()
        readable, writable = os.pipe()
        os.set_blocking(writable, False)
        previous = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writable)
        # The handlers are the keeper's, and must not run in the job's process.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGUSR1))
        keeper = os.getpid()
        with warnings.catch_warnings():
            # Python 3.12 and some frameworks warn of forking a process with threads. They have started none yet.
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, previous)
            os.close(readable)
            os.close(writable)
            self._become(keeper)
            job()
            sys.stderr.flush()
            os._exit(0)
        self._job = pid
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGUSR1))
        poll = select.poll()
        poll.register(self._pipe, 0)
        poll.register(readable, select.POLLIN)
        # Not yet reaped: until then its number is nobody else's, nor its group's.
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._pipe in ready:
                self._end()
            os.read(readable, 512)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, previous)
        os.close(readable)
        os.close(writable)
        return self._clear(pid)

    def _become(self, keeper: int) -> None:
        """Of the job's process: a group of its own, which ends with the keeper and tells where it is when asked."""
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        _tell_stacks()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGUSR1))
        _end_with_parent(signal.SIGKILL)
        if os.getppid() != keeper:
            # It died before it could be followed.
            os._exit(1)

    def _clear(self, pid: int) -> int:
        """End all that a job has started, and remove its temporary files; its exit code."""
        # Not to be begun again by the client's end before it is done.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        self._job = 0
        # Whose own children then come here in turn.
        while strays := _children() - self._children:
            for stray in strays:
                os.kill(stray, signal.SIGKILL)
                os.waitpid(stray, 0)
        for name in self._listed() - self._files:
            remove(os.path.join(self._scratch, name))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        return os.waitstatus_to_exitcode(status)

    def _listed(self) -> set[str]:
        # The client may be gone, and the folder with it.
        with suppress(FileNotFoundError):
            return set(os.listdir(self._scratch))
        return set()

    def _end(self, *_: Any) -> None:
        """The client is gone."""
        # The pipe and the signal both tell: whichever comes second must not end this process before it is done.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        job, self._job = self._job, 0
        if job:
            self._clear(job)
        os._exit(0)

    def _ask(self, *_: Any) -> None:
        """Pass the question for stacks on to the job; without one, this process is what is asked about."""
        if self._job:
            os.kill(self._job, signal.SIGUSR1)
        else:
            faulthandler.dump_traceback()


def remove(path: str) -> None:
    """Remove a file, a link or a folder with all that is in it; what cannot be removed stays."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            os.unlink(path)


def _tell_stacks() -> None:
    # Its handler is in C and takes no lock: it needs no bytecode of the main thread to be run.
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)


def _end_with_parent(number: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _closed(pipe: int, timeout: float | None) -> bool:
    """Whether the other end of a pipe is closed, waiting for it for so many milliseconds; None: for ever."""
    poll = select.poll()
    # No event: only what is always told of, the end of the pipe among it.
    poll.register(pipe, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(timeout))


def _children() -> set[int]:
    """The processes that this one has to wait for, the dead ones among them."""
    found: set[int] = set()
    # Not all kernels tell.
    with suppress(FileNotFoundError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:
                found.update(map(int, file.read().split()))
    return found

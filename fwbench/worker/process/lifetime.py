"""Ends fwbench's processes with their parent, together with all that they have started, and never silently.

`start` imports this first, under any interpreter, so it uses only the standard library. Calls that need Linux are
skipped on other systems, where a process learns from its closed pipe that its client is gone.
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

# prctl(2): send this process a signal when its parent dies; make this process adopt its orphaned descendants.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def begin() -> None:
    """End with the parent and at SIGINT; at SIGUSR1 write all threads' stacks to standard error, in native code too."""
    _tell_stacks()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # So that a KeyboardInterrupt here comes from the measured code.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform != "win32":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_if_closed(pipe: int) -> None:
    """End this process if the other end of its pipe is closed: the client may have died before `begin`."""
    if hasattr(select, "poll") and _closed(pipe, 0):
        os._exit(1)


def end_when_closed(pipe: int) -> None:
    """End this process and its group when the other end of its pipe closes; for systems that do not fork."""

    def watch() -> None:
        if _closed(pipe, None):
            os.killpg(0, signal.SIGKILL)

    if hasattr(select, "poll"):
        threading.Thread(target=watch, daemon=True).start()


class Keeper:
    """Runs jobs one after another, each in a process of its own, and leaves nothing of them behind.

    A job has a process group. Processes that it started in groups and sessions of their own come back to the keeper as
    orphans. When the client is gone, which closes the `pipe`, the keeper ends the job and itself. The folder `scratch`
    holds temporary files of these jobs alone.
    """

    def __init__(self, pipe: int, scratch: str) -> None:
        self._pipe = pipe
        self._scratch = scratch
        self._job = 0
        # Children and files that existed before the job, and so are not the job's.
        self._children: set[int] = set()
        self._files: set[str] = set()
        # SIGTERM, not SIGKILL, from here on: a keeper that is killed cannot end what its job has started.
        signal.signal(signal.SIGTERM, self._end)
        faulthandler.unregister(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, self._ask)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    def run(self, job: Callable[[], None]) -> int:
        """Run a job to its end; return its exit code, or the negated number of the signal that ended it."""
        self._children, self._files = _children(), self._listed()
        readable, writable = os.pipe()
        os.set_blocking(writable, False)
        previous = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writable)
        # These are the keeper's handlers; the job's process must not run them.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGUSR1))
        keeper = os.getpid()
        with warnings.catch_warnings():
            # Python 3.12 and some frameworks warn against forking beside threads. This process has started none yet.
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
        # Until the process is reaped, no other process or group can get its number.
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
        """Make this the job's process: in its own group, it ends with the keeper and writes its stacks when asked."""
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        _tell_stacks()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGUSR1))
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            # The keeper may have died before `begin`.
            os._exit(1)

    def _clear(self, pid: int) -> int:
        """End all that a job has started and remove its temporary files; return its exit code."""
        # The end of the client must not start this a second time.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        self._job = 0
        # The children of an ended process then become this process's children.
        while strays := _children() - self._children:
            for stray in strays:
                os.kill(stray, signal.SIGKILL)
                os.waitpid(stray, 0)
        for name in self._listed() - self._files:
            remove(os.path.join(self._scratch, name))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        return os.waitstatus_to_exitcode(status)

    def _listed(self) -> set[str]:
        # The client may be gone, and have removed the folder.
        with suppress(FileNotFoundError):
            return set(os.listdir(self._scratch))
        return set()

    def _end(self, *_: Any) -> None:
        """End the job and this process; called when the client is gone."""
        # The pipe and the signal both report it: the second report must not interrupt the first one's clean-up.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        job, self._job = self._job, 0
        if job:
            self._clear(job)
        os._exit(0)

    def _ask(self, *_: Any) -> None:
        """Ask the job for its stacks; without a job, write those of this process."""
        if self._job:
            os.kill(self._job, signal.SIGUSR1)
        else:
            faulthandler.dump_traceback()


def remove(path: str) -> None:
    """Remove a file, a link or a folder with its contents; leave what cannot be removed."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            os.unlink(path)


def _tell_stacks() -> None:
    # faulthandler's handler is in C and takes no lock: it runs even if the main thread executes no bytecode.
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _closed(pipe: int, timeout: float | None) -> bool:
    """True if the other end of a pipe is closed; waits so many milliseconds for that, or for ever if None."""
    poll = select.poll()
    # An empty event mask: poll always reports errors and the end of the pipe.
    poll.register(pipe, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(timeout))


def _children() -> set[int]:
    """The processes that this one has to wait for, dead ones included."""
    pids: set[int] = set()
    # Not every kernel has this file.
    with suppress(FileNotFoundError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:
                pids.update(map(int, file.read().split()))
    return pids

"""Which loader processes live, from /proc, and waiting without hanging."""

import threading
import time
from concurrent.futures import Future
from pathlib import Path

from tests.unit.processes import children


def loaders(parent):
    """Living loader processes of a process; multiprocessing's resource tracker is none."""
    found = []
    for pid in children(parent):
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"spawn_main" in arguments:
            found.append(pid)
    return found


def eventually(condition):
    """Whether it comes true within half a minute."""
    for _ in range(3000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def within_a_minute(call):
    """Its result or exception; a hang becomes a failure, as the thread that hangs is left behind."""
    future = Future()

    def run():
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result(timeout=60)

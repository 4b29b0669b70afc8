"""Which loader processes live, from /proc, and waiting without hanging."""

import queue
import threading
import time
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
    results = queue.SimpleQueue()

    def run():
        try:
            results.put((call(), None))
        except Exception as error:
            results.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    result, error = results.get(timeout=60)
    if error:
        raise error
    return result

"""SIGTERM and SIGHUP end a run in order, as Ctrl-C does; what was measured so far is kept."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Ended(KeyboardInterrupt):
    """This process was asked to end by a signal; a shell reports `exit_code` for a process that the signal ended."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextmanager
def in_order() -> Iterator[None]:
    """Raise `Ended` in the main thread at the first SIGTERM or SIGHUP; a second one ends the process at once.

    A signal that is already handled, or ignored as under `nohup`, is left alone.
    """
    # Windows has no SIGHUP, and only the main thread may set handlers.
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]

    def restore() -> None:
        for number in ours:
            if signal.getsignal(number) is end:
                signal.signal(number, signal.SIG_DFL)

    def end(number: int, frame: FrameType | None) -> None:
        restore()
        raise Ended(number)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        restore()

"""The share of a call's time that each line of Python takes, by samples of the main thread that a timer takes.

Nothing is traced, so many small functions are not slowed down more than few large ones. The time of a C function counts
for the line that called it: the sample comes late, when the function returns, and stands for all the time since the
sample before.
"""

import signal
import time
from collections import defaultdict
from collections.abc import Callable
from types import CodeType, FrameType

# Seconds between samples, and seconds of sampling: a function that takes 1 % of the time gets 40 samples.
INTERVAL, SECONDS = 0.0005, 2.0

# A function's name, its file and the line.
Place = tuple[str, str, int]


def sampled(run: Callable[[], object], within: CodeType, seconds: float = SECONDS) -> dict[Place, float]:
    """The seconds of a run that pass at each place `within` a function, and in all that it calls.

    `run` is called until `seconds` have passed, at least once, in the main thread; in another one, a ValueError.
    """
    times: dict[Place, float] = defaultdict(float)
    last = time.perf_counter()

    def sample(_: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.perf_counter()
        since, last = now - last, now
        innermost = frame
        while frame is not None and frame.f_code is not within:
            # A signal may interrupt the sample before it, which is no part of the run.
            if frame.f_code is sample.__code__:
                innermost = frame.f_back
            frame = frame.f_back
        if frame is not None and innermost is not None:
            code = innermost.f_code
            times[code.co_qualname, code.co_filename, innermost.f_lineno] += since

    runs, end = 0, last + seconds
    before = signal.signal(signal.SIGALRM, sample)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)
    try:
        while not runs or time.perf_counter() < end:
            run()
            runs += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    return {place: spent / runs for place, spent in times.items()}

"""Loader processes: order, reuse, and every way to end."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fwbench.ext.epochs.data import DataError
from fwbench.ext.epochs.data.loaders import Loaders
from tests.ext.epochs.data.processes import eventually, loaders, within_a_minute
from tests.ext.epochs.data.readers import Broken, Mortal, Numbers, Signed, Slow, Stuck
from tests.unit.processes import children, gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROOT = Path(__file__).parents[4]


@pytest.fixture
def start():
    """Start loaders of batches of 4; whatever a test starts ends with it."""
    started = []

    def start(read, processes=2, prefetch=2):
        started.append(Loaders("numbers", read, processes, (4, 2), prefetch))
        return started[-1]

    yield start
    for each in started:
        each.close()
    assert loaders(os.getpid()) == []


def plan(samples):
    """Backwards, so that nothing comes in order by chance."""
    order = np.arange(samples)[::-1]
    return [order[first : first + 4] for first in range(0, samples, 4)]


def read_all(loaders, split="any", epoch=0, samples=22):
    return np.concatenate(list(loaders.images(split, epoch, plan(samples))))


def numbers(epoch, samples=22):
    return np.array([(epoch, index) for index in reversed(range(samples))], np.float32)


@pytest.mark.parametrize(("processes", "prefetch"), [(1, 1), (2, 3), (3, 9)])
def test_batches_come_whole_and_in_order_pass_after_pass(start, processes, prefetch):
    several = start(Numbers(), processes, prefetch)
    served = []
    for epoch in range(3):
        np.testing.assert_array_equal(read_all(several, epoch=epoch), numbers(epoch))
        served.append(loaders(os.getpid()))
    assert len(served[0]) == processes
    assert served == [served[0]] * 3


def test_every_loader_has_its_share_even_of_batches_smaller_than_their_number(start):
    several = start(Signed(), processes=3)
    for entries in (plan(12), [np.array([index]) for index in range(12)]):
        readers, counts = np.unique(np.concatenate(list(several.images("any", 0, entries)))[:, 0], return_counts=True)
        assert set(readers.astype(int)) == set(loaders(os.getpid()))
        assert counts.tolist() == [4, 4, 4]


def test_a_batch_stays_as_it_is_when_its_memory_is_filled_anew(start):
    batches = list(start(Numbers(), prefetch=1).images("any", 0, plan(16)))
    np.testing.assert_array_equal(np.concatenate(batches), numbers(0, 16))


def test_no_more_is_read_ahead_than_asked_for(start, tmp_path):
    batches = start(Numbers(tmp_path), prefetch=2).images("any", 0, plan(80))
    next(batches)
    # The batch in hand and two ahead.
    assert eventually(lambda: len(list(tmp_path.iterdir())) == 12)
    time.sleep(0.3)
    assert len(list(tmp_path.iterdir())) == 12
    batches.close()


def test_a_sample_that_cannot_be_read_raises_its_sentence_and_the_next_pass_goes_on(start):
    several = start(Broken(index=13))
    with pytest.raises(DataError, match=r"^row 13 cannot be read$"):
        within_a_minute(lambda: read_all(several, "broken"))
    np.testing.assert_array_equal(read_all(several, "whole", epoch=1), numbers(1))


def test_after_an_abandoned_pass_the_next_one_is_right_and_does_not_wait_for_what_was_asked(start, tmp_path):
    several = start(Slow(tmp_path), processes=1, prefetch=9)
    batches = several.images("slow", 0, [np.zeros(1, np.int64), *plan(36)])
    next(batches)
    batches.close()
    np.testing.assert_array_equal(read_all(several, epoch=1), numbers(1))
    # Of the 36 slow samples that were asked for, most were left unread.
    assert len(list(tmp_path.glob("slow-*"))) < 30


@pytest.mark.parametrize(
    ("code", "how"), [(0, "a loader process was killed by SIGKILL"), (3, "a loader process ended with exit code 3")]
)
def test_a_loader_that_dies_is_reported_and_the_others_end_with_it(start, code, how):
    several = start(Mortal(code=code), processes=3)
    with pytest.raises(DataError, match=f"^numbers: {how}; .* why"):
        within_a_minute(lambda: read_all(several))
    assert several.closed
    assert loaders(os.getpid()) == []


def kill(_):
    for pid in loaders(os.getpid()):
        # The others are ended as soon as one is gone.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "sentence"),
    [(kill, "was killed by SIGKILL"), (Loaders.close, "numbers was closed while its batches were still being read")],
)
def test_a_stuck_loader_that_ends_or_is_closed_is_told_to_whoever_waits_for_it(start, tmp_path, end, sentence):
    several = start(Stuck(tmp_path))

    def wait():
        eventually((tmp_path / "any-0-5").exists)
        end(several)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with pytest.raises(DataError, match=sentence):
        within_a_minute(lambda: read_all(several))
    waiting.join()
    assert loaders(os.getpid()) == []


def test_loaders_killed_between_passes_are_reported(start):
    several = start(Numbers())
    read_all(several)
    kill(several)
    assert eventually(lambda: loaders(os.getpid()) == [])
    with pytest.raises(DataError, match="was killed by SIGKILL"):
        within_a_minute(lambda: read_all(several))


def test_closing_under_an_open_iterator_leaves_no_process_and_closing_twice_is_fine(start, tmp_path):
    several = start(Numbers(tmp_path), prefetch=3)
    batches = several.images("any", 0, plan(16))
    next(batches)
    # Even when all has been read and only waits to be fetched.
    assert eventually(lambda: len(list(tmp_path.iterdir())) == 16)
    time.sleep(0.1)
    several.close()
    several.close()
    assert loaders(os.getpid()) == []
    with pytest.raises(DataError, match="was closed while"):
        within_a_minute(lambda: list(batches))


@pytest.fixture
def script():
    """Run a program in a process of its own, standard output piped."""
    running = []

    def script(code, **options):
        command = [sys.executable, "-c", textwrap.dedent(code)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, **options))
        return running[-1]

    yield script
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


OPEN = """
    import os, sys, time
    import numpy as np
    from fwbench.ext.epochs.data.loaders import Loaders
    from tests.ext.epochs.data.processes import loaders
    from tests.ext.epochs.data.readers import Numbers

    several = Loaders("numbers", Numbers(), 2, (4, 2), 2)
    batches = several.images("any", 0, [np.arange(4)] * 100)
    next(batches)
    print(*loaders(os.getpid()), flush=True)
"""


def test_loaders_end_when_their_consumer_is_killed(script):
    process = script(OPEN + "    time.sleep(600)", stderr=subprocess.PIPE)
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    process.kill()
    assert gone(pids)
    # They go without a word, for it was not their fault.
    with process.stderr:
        assert process.stderr.read() == ""


@pytest.mark.parametrize("ending", ["", "    raise RuntimeError('the consumer fails')"])
def test_an_interpreter_that_forgets_to_close_ends_and_so_do_its_loaders(script, ending):
    process = script(OPEN + ending, stderr=subprocess.DEVNULL)
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    assert process.wait(timeout=60) == bool(ending)
    assert gone(pids)


def test_ctrl_c_is_left_to_the_consumer(start):
    several = start(Numbers())
    # Both have read something, so both have begun.
    read_all(several)
    for pid in loaders(os.getpid()):
        os.kill(pid, signal.SIGINT)
    np.testing.assert_array_equal(read_all(several), numbers(0))


def test_loaders_start_from_a_forked_process_without_standard_input(script):
    """As a measured process is started."""
    process = script(
        """
        import os
        pid = os.fork()
        if not pid:
            os.close(0)
            import numpy as np
            from fwbench.ext.epochs.data.loaders import Loaders
            from tests.ext.epochs.data.readers import Numbers

            several = Loaders("numbers", Numbers(), 2, (4, 2), 2)
            found = np.concatenate(list(several.images("any", 7, [np.arange(4)] * 5)))
            print(found.sum(axis=0).tolist(), flush=True)
            several.close()
            os._exit(0)
        os.waitpid(pid, 0)
        """
    )
    assert process.stdout.readline() == "[140.0, 30.0]\n"
    assert eventually(lambda: children(process.pid) == [])

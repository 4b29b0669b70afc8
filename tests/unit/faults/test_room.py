"""No room for temporary files, and few file descriptors: one sentence for a run, and nothing left behind."""

import os
import re
import shutil
import sys
import tempfile

import pytest

from fwbench.errors import UserError
from fwbench.worker.client import scratch
from fwbench.worker.client.channel import Channel
from fwbench.worker.client.scratch import Scratch
from tests.unit.shared import ALONE, finish
from tests.unit.suites import FAST, in_process
from tests.unit.suites import suite as noops

ROOM = "no room for temporary files"
FEW = "few file descriptors"

__all__ = ["noops"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts, and limits descriptors")

# Has a file system of 64 KiB for itself, and runs a command with it as TMPDIR.
SMALL = """
mount -t tmpfs -o size=64k none small || exit 99
export TMPDIR=$PWD/small
"$@"
code=$?
rm -f small/fill
ls -A small > left
exit $code
"""

# Fills that, after Python has chosen it.
FILL = """
import os
import tempfile

def fill(*_):
    with open(os.path.join(tempfile.gettempdir(), "fill"), "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(256))
        except OSError:
            return

tempfile.gettempdir()
"""


def mounts():
    """Whether this process may make a file system of its own."""
    mount = ("unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt")
    return bool(shutil.which("unshare")) and not finish(*mount).returncode


def small(folder, *command):
    """A command in so little room: its exit code, its output, and what it left there."""
    if not mounts():
        pytest.skip("may not mount")
    (folder / "small").mkdir()
    done = finish("unshare", "-m", "sh", "-c", SMALL, "sh", *command, cwd=folder, timeout=120)
    return done.returncode, done.stdout + done.stderr, (folder / "left").read_text().split()


def told(output):
    """The sentence on temporary files, which is said once."""
    assert "Traceback" not in output
    sentences = re.findall(r"temporary files cannot be written to .*", output)
    assert len(sentences) == 1, output
    return sentences[0].rstrip(" !")


RUN = (sys.executable, "-m", "pytest", *ALONE, *FAST)


@pytest.mark.parametrize(
    ("when", "options"),
    [
        ("when it begins", "--benchmark-only"),
        pytest.param("when it begins", "--benchmark-only --fwbench-minutes=1", marks=pytest.mark.slow),
        pytest.param("when its tests begin", "--benchmark-only", marks=pytest.mark.slow),
        ("when its tests begin", "--benchmark-disable"),
    ],
)
def test_a_full_folder_ends_the_run_in_one_sentence(noops, fault, when, options):
    fills = "fill()" if when == "when it begins" else "pytest_runtest_setup = fill"
    noops.makeconftest(f'{FILL}\n{fills}\npytest_plugins = ["fwbench.plugin"]\n')
    code, output, left = small(noops.path, *RUN, *options.split())
    assert code in (2, 4)
    assert left == []
    fault(ROOM, f"TMPDIR is full {when}, {options}", told(output))


def test_a_folder_that_becomes_full_takes_no_half_folder(tmp_path, fault):
    code = "from fwbench.worker.client.scratch import Scratch; kept = [Scratch() for _ in range(64)]"
    ends, output, left = small(tmp_path, sys.executable, "-c", code)
    assert ends == 1
    # The folders of a process that has ended.
    assert left == []
    fault(ROOM, "TMPDIR becomes full", output.strip().rpartition("\n")[2])


@pytest.mark.parametrize("kind", ["is a file", "takes no folder"])
def test_a_folder_that_cannot_be_used_is_one_sentence(tmp_path, monkeypatch, fault, kind):
    path = tmp_path / "tmp"
    path.touch()
    monkeypatch.setattr(tempfile, "tempdir", "/proc" if kind == "takes no folder" else str(path))
    with pytest.raises(UserError) as refused:
        Scratch()
    fault(ROOM, f"TMPDIR {kind}", told(str(refused.value)))


def test_a_folder_that_is_gone_is_one_sentence_for_the_run(noops, monkeypatch, fault):
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    # Later than pytest's own.
    gone = str(noops.path / "tmp")
    hook = f"import tempfile\n\ndef pytest_runtest_setup(item):\n    tempfile.tempdir = {gone!r}\n"
    noops.makeconftest(f'pytest_plugins = ["fwbench.plugin"]\n{hook}')
    done = in_process(noops, "--benchmark-only", *FAST)
    assert done.ret == 2
    output = "\n".join(done.outlines)
    assert not re.search(r"^(FAILED|ERROR)", output, re.MULTILINE)
    fault(ROOM, "TMPDIR is gone", told(output))


def test_no_folder_is_left_where_its_note_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_OWNER", "x" * 300)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(UserError, match="File name too long"):
        Scratch()
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == len(before)


# File descriptors


def limited(number, *command, cwd):
    script = f'ulimit -n {number} && exec "$@"'
    return finish("sh", "-c", script, "sh", *command, cwd=cwd, timeout=120)


@pytest.mark.parametrize("number", [20, pytest.param(32, marks=pytest.mark.slow), 63])
def test_a_run_says_that_it_may_open_too_few_files(noops, fault, number):
    done = limited(number, *RUN, "--benchmark-only", cwd=noops.path)
    assert done.returncode == 4
    said = [line for line in done.stderr.splitlines() if line]
    assert len(said) == 1
    assert f"may open {number} files" in said[0]
    fault(FEW, f"ulimit -n {number}", said[0])


def test_as_many_as_it_asks_for_are_enough(noops):
    assert limited(64, *RUN, "--benchmark-only", cwd=noops.path).returncode == 0


# Leaves so many descriptors, and runs a line of code.
LEAVE = """
import os, resource, tempfile
from fwbench.errors import UserError
from fwbench.worker.client.channel import Channel
from fwbench.worker.client.scratch import Scratch
tempfile.gettempdir()
used = max(map(int, os.listdir("/proc/self/fd"))) + 1
resource.setrlimit(resource.RLIMIT_NOFILE, (used - 1 + {left}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    {code}
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("left", "code"),
    [(0, "Scratch()"), (0, "Channel(['true'], {})"), (2, "Channel(['true'], {})"), (6, "Channel(['true'], {})")],
)
def test_the_last_descriptors_are_told_where_they_are_taken(tmp_path, monkeypatch, fault, left, code):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = finish(sys.executable, "-c", LEAVE.format(left=left, code=code), timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Too many open files" in done.stdout
    assert "ulimit -n" in done.stdout
    assert list(tmp_path.iterdir()) == []
    fault(FEW, f"{left} are left for {code.partition('(')[0]}", done.stdout)


def test_a_channel_is_not_told_of_what_is_wrong_with_its_command(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        Channel([str(tmp_path / "none")], {})

"""What happens to a run's files while it writes them: deleted, replaced, cut off; and what a killed process leaves."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fwbench.record import files
from fwbench.record.journal import Journal, lines, newest
from fwbench.record.reading import read
from tests.unit.shared import needs
from tests.unit.suites import benchmarks, given, run
from tests.unit.suites import in_process as in_this_process
from tests.unit.suites import suite as noops

__all__ = ["given", "noops"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="moves open files")

ONLY = ("--benchmark-only", "--fwbench-minutes=0", "--fwbench-set=patience=0", "--benchmark-max-time=0")
GONE = "the storage disappears during a run"
KILLED = "a run is killed while saving"

# After the benchmark of this batch size something happens to the folder of the journals.
AFTER = """
import os, shutil
from pathlib import Path

pytest_plugins = ["fwbench.plugin"]

def pytest_runtest_teardown(item):
    if "b{size}]" in item.name and not Path("again").exists():
        (journal,) = Path(".benchmarks/journal").glob("*.jsonl")
        {what}
"""


def told(result):
    """The note on the journal at the end of the output."""
    (sentence,) = [line for line in result.outlines if "was removed or changed" in line]
    return sentence


@pytest.mark.parametrize(
    ("what", "tried", "stays", "size"),
    [
        ("shutil.rmtree('.benchmarks')", "`rm -r .benchmarks`", True, 1),
        ("os.rename('.benchmarks', 'elsewhere')", "`mv .benchmarks elsewhere`", True, 1),
        ("journal.unlink()", "the journal alone is deleted", True, 1),
        ("journal.unlink()", "the journal alone is deleted, when all is measured", True, 3),
        ("os.truncate(journal, 100)", "somebody cuts the journal off", False, 1),
        (
            "journal.rename('x'); shutil.copy('x', journal); journal.write_bytes(journal.read_bytes()[:-9])",
            "an older copy is put in the journal's place",
            False,
            3,
        ),
    ],
)
def test_a_journal_that_is_gone_is_written_again_and_the_user_told(noops, given, fault, what, tried, stays, size):
    """At the next record, or at the run's end; nothing that somebody put in its place is touched."""
    noops.makeconftest(AFTER.format(size=size, what=what))
    before = set(noops.path.rglob("*"))
    result = in_this_process(noops, *ONLY, "--benchmark-autosave")
    assert result.ret == 0
    made = [path for path in noops.path.glob(".benchmarks/journal/*.jsonl") if path not in before]
    named = told(result).rpartition(", into ")[2]
    found = read(noops.path / named)
    assert [m.workload.batch_size for m in found.measurements] == [1, 2, 3]
    assert found.notes == ()
    assert (len(made) == 1) == stays
    (saved,) = noops.path.glob(".benchmarks/*/*.json")
    assert len(json.loads(saved.read_text())["benchmarks"]) == 3
    fault(GONE, tried, told(result))


def test_a_storage_that_cannot_be_made_again_is_said_and_the_run_fails(noops, given, fault):
    noops.makeconftest(AFTER.format(size=3, what="shutil.rmtree('.benchmarks'); Path('.benchmarks').write_text('')"))
    result = in_this_process(noops, *ONLY)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (sentence,) = [line for line in result.outlines if line.startswith("ERROR: ")]
    assert "cannot be written" in sentence
    # What was measured is in the table at least.
    result.stdout.fnmatch_lines(["noop * 3 *"])
    fault(
        GONE, "`.benchmarks` is deleted, and a file has its name", sentence, lost="the journal; the table was printed"
    )


@needs("resume")
@pytest.mark.slow
def test_a_real_run_whose_storage_is_deleted_between_two_benchmarks_can_be_resumed(noops, fault):
    """In a process of its own."""
    noops.makeconftest(AFTER.format(size=1, what="shutil.rmtree('.benchmarks')"))
    result = run(noops, *ONLY)
    assert result.ret == 0
    sentence = told(result)
    (noops.path / "again").touch()
    again = run(noops, *ONLY, "--fwbench-resume")
    again.stdout.fnmatch_lines(["fwbench: 3 of 3 benchmarks taken from .benchmarks/journal/*"])
    fault(GONE, "the same in a process of its own, which is then resumed", sentence)


def test_the_current_directory_may_change(noops, fault):
    """It is no loss."""
    noops.makepyfile(test_suite=benchmarks(first="import os; os.makedirs('below', exist_ok=True); os.chdir('below')"))
    result = in_this_process(noops, *ONLY)
    assert result.ret == 0
    assert "was removed or changed" not in result.stdout.str()
    assert len(read(newest(noops.path / ".benchmarks" / "journal")).measurements) == 3
    fault(GONE, "tests change the current directory, and the storage is relative")


def test_the_next_record_finds_that_the_file_is_gone(tmp_path, fault):
    """A run may be killed before its end."""
    journal = Journal(tmp_path / "journal", {})
    journal.append({"number": 1})
    shutil.rmtree(tmp_path / "journal")
    journal.append({"number": 2})
    whole, _ = lines(journal.path.read_text())
    assert [json.loads(line).get("number") for line in whole] == [None, 1, 2]
    journal.close()
    assert len(journal.losses) == 1
    fault(GONE, "its folder is deleted, and the run is killed after the next benchmark", journal.losses[0])


def test_a_named_file_that_is_replaced_stays_as_somebody_made_it(tmp_path, fault):
    """As that of the self-test."""
    journal = Journal(tmp_path, {"by": "us"}, "suites.jsonl")
    journal.append({"number": 1})
    journal.path.unlink()
    journal.path.write_text("theirs\n")
    journal.append({"number": 2})
    journal.close()
    assert (tmp_path / "suites.jsonl").read_text() == "theirs\n"
    whole, _ = lines(journal.path.read_text())
    assert [json.loads(line).get("number") for line in whole] == [None, 1, 2]
    fault(GONE, "the file of a self-test is replaced", journal.losses[0])


# A process that writes a file, and is stopped just before the new file gets its name.
STOPPED = """
import os, signal, sys
from pathlib import Path
from fwbench.record import files

def stop(*_):
    print("stopped", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

{patch} = stop
files.{write}(Path(sys.argv[1]), "new")
"""


def writing(path, write, patch):
    """Such a process, stopped."""
    source = STOPPED.format(patch=patch, write=write)
    process = subprocess.Popen([sys.executable, "-c", source, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "stopped\n"
    while "\nState:\tT" not in Path(f"/proc/{process.pid}/status").read_text():
        time.sleep(0.01)
    return process


@pytest.mark.parametrize(
    ("write", "patch", "tried"),
    [
        ("write", "Path.replace", "SIGKILL before a new file takes an older one's place"),
        ("create", "os.link", "SIGKILL before a new file gets its name"),
        ("create", "os.fsync", "SIGKILL while the contents are written"),
    ],
)
def test_what_a_killed_process_leaves_is_swept_by_the_next_one_and_a_living_ones_is_not(
    tmp_path, fault, write, patch, tried
):
    path = tmp_path / "x.json"
    process = writing(path, write, patch)
    try:
        (left,) = tmp_path.glob(".fwbench-*.new")
        files.sweep(tmp_path)
        files.write(tmp_path / "other.json", "other")
        # Its owner lives, though it is stopped.
        assert left.exists()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        files.write(tmp_path / "another.json", "another")
        assert sorted(found.name for found in tmp_path.iterdir()) == ["another.json", "other.json"]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    fault(KILLED, f"{tried}; then another file is written there")


def test_a_stopped_writer_that_goes_on_has_its_file(tmp_path):
    path = tmp_path / "x.json"
    process = writing(path, "create", "os.link")
    files.sweep(tmp_path)
    os.kill(process.pid, signal.SIGCONT)
    process.communicate(timeout=30)
    # `stop` stands for the link, so that there is none; but nothing is left.
    assert list(tmp_path.iterdir()) == []


def test_the_next_run_sweeps_the_whole_storage(noops, given, fault):
    storage = noops.path / ".benchmarks" / "Linux-CPython-3.13-64bit"
    storage.mkdir(parents=True)
    process = writing(storage / "0001_x.json", "create", "os.link")
    process.kill()
    process.wait()
    process.stdout.close()
    assert len(list(storage.iterdir())) == 1
    assert in_this_process(noops, *ONLY).ret == 0
    assert list(storage.iterdir()) == []
    fault(KILLED, "SIGKILL while pytest-benchmark saves; then a run that saves nothing")


def test_what_is_swept_before_it_is_locked_is_made_again(tmp_path, monkeypatch, fault):
    """Another process may come between making a file and locking it."""
    opened, real = [], os.open

    def racing(path, flags, *rest, **named):
        found = real(path, flags, *rest, **named)
        if flags & os.O_EXCL and not opened:
            opened.append(path)
            files.sweep(tmp_path)
        return found

    monkeypatch.setattr(os, "open", racing)
    files.create(tmp_path / "x.json", "whole")
    assert opened
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("x.json", "whole")]
    fault(KILLED, "another run sweeps at the very moment at which a file is made")

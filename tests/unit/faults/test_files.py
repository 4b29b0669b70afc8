"""What is no file where the user names one, or where fwbench looks for its own."""

import os
import shutil
import signal
import socket
import sys
import threading

import pytest

import fwbench
from fwbench.commands.cli import main
from fwbench.models import store
from fwbench.record import files, journal
from fwbench.worker.client.starting import PACKAGE
from tests.unit.shared import finish, needs
from tests.unit.suites import in_process
from tests.unit.suites import suite as noops

KIND = "a file that is no file"

__all__ = ["noops"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="makes pipes and sockets with names")


@pytest.fixture(autouse=True)
def soon():
    """Whatever waits for ever ends here."""

    def end(*_):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def a_pipe(path):
    os.mkfifo(path)


def a_link_to_a_pipe(path):
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def a_device(path):
    path.symlink_to("/dev/zero")


def a_socket(path):
    # Its name may be no longer than a hundred bytes.
    here = os.getcwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def a_folder(path):
    path.mkdir()


def a_link_to_itself(path):
    path.symlink_to(path.name)


THINGS = (a_pipe, a_link_to_a_pipe, a_device, a_socket, a_folder, a_link_to_itself)
named = pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.__name__)


def tried(thing, where):
    return f"{thing.__name__.replace('_', ' ')} {where}"


@named
def test_only_files_are_opened(tmp_path, thing):
    thing(tmp_path / "x")
    for read in (files.read, files.opened):
        with pytest.raises(OSError, match=r".") as refused:
            read(tmp_path / "x")
        assert refused.value.filename == str(tmp_path / "x")
        assert refused.value.strerror


@named
@pytest.mark.parametrize(
    "command",
    [
        "report {}",
        "compare {} {}",
        pytest.param("audit {}", marks=needs("proofs")),
        pytest.param("selftest --output {}", marks=needs("trials")),
        pytest.param("history {}", marks=needs("history")),
    ],
)
def test_commands_refuse_it_in_one_sentence(tmp_path, monkeypatch, capsys, fault, thing, command):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ("x.toml" if "audit" in command else "x.json")
    thing(path)
    assert main(command.replace("{}", str(path)).split()) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    fault(KIND, tried(thing, f"for `fwbench {command.replace('{}', 'FILE')}`"), said)


@named
@pytest.mark.parametrize(
    "option",
    [pytest.param("--fwbench-resume={}", marks=needs("resume")), "--fwbench-gate --benchmark-compare={}"],
)
def test_a_run_refuses_it_before_it_measures(noops, fault, thing, option):
    path = noops.path / "x.jsonl"
    thing(path)
    done = in_process(noops, "--benchmark-only", *option.format(path).split())
    assert done.ret == 4
    told = [line for line in done.errlines if line.startswith("ERROR: ")]
    assert len(told) == 1
    assert not list((noops.path / ".benchmarks").rglob("*.jsonl"))
    fault(KIND, tried(thing, f"for `{option.format('FILE')}`"), told[0])


@pytest.mark.parametrize("thing", [a_pipe, a_socket, a_folder], ids=lambda thing: thing.__name__)
def test_a_summary_that_cannot_be_written_is_told_before_it_measures(noops, fault, thing):
    path = noops.path / "x.md"
    thing(path)
    done = in_process(
        noops, "--benchmark-only", "--fwbench-gate", f"--fwbench-summary={path}", "--benchmark-compare=x.json"
    )
    assert done.ret == 4
    (told,) = (line for line in done.errlines if line.startswith("ERROR: "))
    assert str(path) in told
    fault(KIND, tried(thing, "for `--fwbench-summary=FILE`"), told)


@pytest.mark.parametrize("thing", [a_pipe, a_device, a_socket, a_link_to_itself], ids=lambda thing: thing.__name__)
def test_a_journal_that_is_none_is_not_the_newest(tmp_path, fault, thing):
    thing(tmp_path / "x.jsonl")
    assert journal.newest(tmp_path) is None
    fault(KIND, tried(thing, "among the journals that `--fwbench-resume` looks at"))


@named
def test_what_lies_in_the_place_of_a_proof_or_a_checkpoint_is_none(tmp_path, monkeypatch, fault, thing):
    thing(tmp_path / "mine.json")
    assert store._read(tmp_path, "mine") == []
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert store._checkpoint(fwbench.Model("x", torch="a:b", inputs=fwbench.normal(2), checkpoint="mine.json")) == {}
    fault(KIND, tried(thing, "in the place of a proof"))


@pytest.mark.parametrize("thing", [a_pipe, a_socket, a_folder], ids=lambda thing: thing.__name__)
def test_a_report_is_not_written_into_it(tmp_path, monkeypatch, capsys, fault, thing):
    monkeypatch.chdir(tmp_path)
    kept = fwbench.record.storage.STORAGE
    shutil.copytree(os.path.join(os.path.dirname(fwbench.__file__), "..", kept), tmp_path / kept)
    (tmp_path / "report").mkdir()
    thing(tmp_path / "report" / "tables.md")
    assert main(["report", "--format=markdown"]) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    fault(KIND, tried(thing, "in the place of the report's tables"), said)


def test_a_pipe_that_somebody_reads_takes_more_than_it_holds(tmp_path):
    """It is opened without waiting, and written with waiting."""
    os.mkfifo(tmp_path / "pipe")
    content, got = os.urandom(1 << 20), bytearray()
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)

    def take():
        while len(got) < len(content):
            got.extend(os.read(reader, 1 << 12))

    thread = threading.Thread(target=take)
    # It begins once the pipe is full.
    timer = threading.Timer(0.2, thread.start)
    timer.start()
    files.write(tmp_path / "pipe", content)
    timer.join()
    thread.join()
    os.close(reader)
    assert bytes(got) == content


@pytest.mark.skipif(sys.platform != "linux", reason="writes to /dev/full")
@pytest.mark.parametrize(
    ("redirected", "code"),
    [(">&-", 0), ("<&- >&- 2>&-", 0), ("> /dev/full", 4), ("< pipe", 0)],
)
def test_standard_streams_may_be_closed_full_or_silent(tmp_path, fault, redirected, code):
    os.mkfifo(tmp_path / "pipe")
    # It has a writer, which writes nothing.
    holder = os.open(tmp_path / "pipe", os.O_RDWR)
    command = ("sh", "-c", f'"$0" -m fwbench list {redirected}', sys.executable)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = finish(*command, cwd=tmp_path, env=environment, timeout=60)
    os.close(holder)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    fault("a descriptor that cannot be used", f"`fwbench list {redirected}`", done.stderr)

"""Interpreters that misbehave, and what fwbench asks them."""

import os
import sys
import textwrap
from pathlib import Path

import pytest

from fwbench.commands import collecting
from fwbench.commands.cli import main
from fwbench.errors import UserError
from fwbench.machine import machine
from fwbench.models.project import Project
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.client import asking, channel
from fwbench.worker.client.workers import Workers
from tests.unit.processes import gone, started_with
from tests.unit.shared import ALONE, extension, needs
from tests.unit.suites import benchmarks, in_process
from tests.unit.suites import suite as noops

conditions = extension("resume.conditions")

INSTALLED = extension("causes.installed")

KIND = "an interpreter that misbehaves"

__all__ = ["noops"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stubs an interpreter by a script")


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Make an interpreter of a script of shell; `$python` is the real one."""
    monkeypatch.setenv("STUB", str(tmp_path))
    for name in ("_BEGINS", "_ENDS"):
        monkeypatch.setattr(channel, name, 0.3)

    def make(script):
        path = tmp_path / "python-stub"
        path.write_text(f"#!/bin/sh\npython={sys.executable}\n{textwrap.dedent(script)}\n")
        path.chmod(0o755)
        if conditions:
            conditions.interpreter.cache_clear()
        if INSTALLED:
            INSTALLED.listed.cache_clear()
        return str(path)

    yield make
    assert gone(started_with(f"STUB={tmp_path}") - {os.getpid()})


def site(folder, code):
    """A script of shell that runs the real interpreter behind some code."""
    (folder / "sitecustomize.py").write_text(textwrap.dedent(code))
    return f'PYTHONPATH={folder} exec $python "$@"'


# Each answers all the same.
ANSWERS = {
    "prints before": "print('hello')",
    "prints half a line before": "print('hello', end='', flush=True)",
    "prints last": "import atexit; atexit.register(print, 'bye')",
    "prints JSON before and after": "import atexit; print('{}'); atexit.register(print, '{\"version\": 1}')",
    "prints no UTF-8": "import os; os.write(1, b'\\xff\\xfe\\n'); os.write(2, b'\\xff\\n')",
    "prints UTF-16": "import sys; sys.stdout.reconfigure(encoding='utf-16'); print('hello')",
    "has replaced its standard output": "import io, sys; sys.stdout = io.StringIO()",
    "has closed its standard output": "import sys; sys.stdout.close = None; sys.stdout = None",
    "prints a thousand lines": "print('x\\n' * 1000)",
    "hangs when it has answered": "import atexit, time; atexit.register(time.sleep, 3600)",
    "fails when it has answered": "import atexit, os; atexit.register(os._exit, 7)",
    "has a helper that keeps its pipes": (
        "import subprocess, sys, os\n"
        "if 'HELPER' not in os.environ:\n"
        "    subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(3600)'],"
        " env={**os.environ, 'HELPER': '1'}, start_new_session=True)\n"
    ),
}


@needs("resume")
@pytest.mark.parametrize("kind", ANSWERS)
def test_what_it_prints_besides_is_no_answer(tmp_path, stub, fault, kind):
    python = stub(site(tmp_path, ANSWERS[kind]))
    assert conditions.interpreter(python)["version"] == sys.version.split()[0]
    fault(KIND, kind)


# None of these answers.
SILENT = {
    "ends with 0": "exit 0",
    "ends with 3 and a reason": "echo broken >&2; exit 3",
    "is killed": "kill -9 $$",
    "prints something else": "echo '[\"3.13.0\", []]'",
    "prints only no UTF-8": "printf '\\377\\376\\n'; printf '\\377' >&2; exit 1",
    "closes its standard output and hangs": "exec >&-; sleep 3600",
    "prints for ever": "yes",
    "is no program": None,
}
HANGS = {
    "hangs": "sleep 3600",
    "hangs and ignores SIGTERM": "trap '' TERM INT HUP USR1; sleep 3600; sleep 3600",
    "reads what nobody writes": "cat",
    "floods its standard error": "yes >&2",
    "prints a line without an end": "exec cat /dev/zero",
}


def silent(stub, kind):
    script = {**SILENT, **HANGS}[kind]
    python = stub(script or "")
    if script is None:
        Path(python).write_bytes(b"\x7fELF of another machine")
    return python


@needs("resume")
@pytest.mark.parametrize("kind", SILENT)
def test_one_that_gives_no_answer_is_one_sentence(stub, fault, kind):
    python = silent(stub, kind)
    said = ""
    if INSTALLED:
        with pytest.raises(UserError) as refused:
            INSTALLED.listed(python)
        said = str(refused.value)
        assert python in said
        assert "\n" not in said
    # Its own benchmarks tell of it, and others are measured.
    assert conditions.interpreter(python) == {"version": None, "distributions": {}}
    fault(KIND, kind, said)


@needs("resume")
@pytest.mark.parametrize("kind", HANGS)
def test_one_that_does_not_end_is_given_up(stub, monkeypatch, fault, kind):
    monkeypatch.setattr(asking, "DEADLINE", 0.5)
    python = silent(stub, kind)
    with pytest.raises(UserError) as refused:
        conditions.interpreter(python)
    assert "within 0.5 s" in str(refused.value)
    fault(KIND, kind, str(refused.value))


def test_a_run_whose_interpreter_hangs_ends_at_once(noops, stub, monkeypatch, fault):
    """Else each of its benchmarks would wait for the deadline of a worker's start."""
    monkeypatch.setattr(asking, "DEADLINE", 0.5)
    noops.makepyfile(test_suite=benchmarks("mlp", "torch", sizes=[1]))
    done = in_process(noops, "--benchmark-only", f"--fwbench-python=torch={silent(stub, 'hangs')}")
    assert done.ret == 4
    (said,) = (line for line in done.errlines if line.startswith("ERROR: "))
    assert "no answer within 0.5 s" in said
    assert "INTERNALERROR" not in str(done.outlines)
    fault(KIND, "hangs, in a run of benchmarks", said)


@pytest.mark.parametrize("kind", ["ends with 0", "is no program", "closes its standard output and hangs"])
def test_its_worker_fails_alone(stub, tmp_path, fault, kind):
    workers = Workers(machine(), "cpu", {"noop": silent(stub, kind)}, Project(tmp_path, ()))
    measured = workers.measure(Workload("noop", "noop"), PROFILES["quick"], lambda stage: None)
    workers.close()
    assert measured.failure.kind == "crashed"
    assert "SIGKILL" not in measured.failure.message
    fault(KIND, f"{kind}, as a worker", measured.failure.message)


# Programs that are run to their end


def test_a_program_that_does_not_end_is_killed_with_all_that_it_started(stub, fault):
    python = stub("sleep 3600 & sleep 3600")
    with pytest.raises(UserError, match=r"did not end within 0.5 s") as refused:
        asking.run([python], 0.5)
    fault(KIND, "hangs with a helper, as uv or pip might", str(refused.value))


def test_a_programs_output_may_be_no_text(stub):
    done = asking.run([stub("cat; printf '\\377\\n'; printf '\\376' >&2; exit 3")], 60.0, given="asked\n")
    assert (done.returncode, done.stdout, done.stderr) == (
        3,
        "asked\n\N{REPLACEMENT CHARACTER}\n",
        "\N{REPLACEMENT CHARACTER}",
    )


# The project's tests, which `fwbench prove` collects


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {' '.join(ALONE)}\n")

    def write(code):
        (tmp_path / "test_mine.py").write_text(textwrap.dedent(code))

    return write


@needs("proofs")
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("SystemExit", "raise SystemExit('done')"),
        ("KeyboardInterrupt", "raise KeyboardInterrupt"),
        # As interpreters that end with 0, and are killed.
        pytest.param("os._exit(0)", "import os; os._exit(0)", marks=pytest.mark.slow),
        pytest.param("closed descriptors", "import os; os.closerange(0, 64); os._exit(0)", marks=pytest.mark.slow),
        pytest.param("SIGKILL", "import os; os.kill(os.getpid(), 9)", marks=pytest.mark.slow),
    ],
)
def test_tests_that_end_the_process_that_collects_them_are_one_sentence(project, capsys, fault, kind, code):
    project(code)
    assert main(["prove"]) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "could not be collected" in said
    fault(KIND, f"the project's tests end it: {kind}", said)


@needs("proofs")
def test_tests_that_hang_are_one_sentence_that_says_where(project, monkeypatch, capsys, fault):
    project("import time\n\ndef wait_here():\n    time.sleep(3600)\n\nwait_here()\n")
    for deadline in (3.0, 30.0):
        monkeypatch.setattr(collecting, "_COLLECTING", deadline)
        assert main(["prove"]) == 4
        said = capsys.readouterr().err
        if "wait_here" in said:
            break
    assert f"no answer within {deadline:g} s in wait_here (" in said
    fault(KIND, "the project's tests hang", said)


@needs("proofs")
def test_tests_that_print_are_collected(project, capsys):
    project("import os, sys\nos.write(1, b'\\xff\\n{}\\n')\nprint('hello')\n")
    assert main(["prove"]) == 4
    assert "no test names a model to prove" in capsys.readouterr().err

"""Projects in folders with odd names: all that reads and writes there does so without a traceback."""

import os
import subprocess
import sys

import pytest

from fwbench.worker.client.starting import PACKAGE
from tests.unit.shared import ALONE, needs
from tests.unit.suites import FAST, benchmarks

KIND = "an odd path of the project"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a name may hold any byte")

ODD = {
    "a line feed": b"a\nb",
    "a carriage return": b"a\rb",
    "a colon": b"a:b",
    "quotation marks": b"quo'te\"s",
    "a dash at its start": b"-dash",
    "a space at its end": b"trail ",
    "bytes that are no UTF-8": b"\xff\xfe",
    "a tabulator": b"tab\tx",
    "words of a shell": b"$(touch pwned)`x`;#&<>|",
    "braces and signs of percent": b"%s{}{0}",
    "codes of a terminal": b"\x1b7\x07red",
    "two hundred letters": b"x" * 200,
    "all that is odd": b"-li\nne quo'te\"s\xff%s{}\tx$(touch pwned)\x1b7 ",
}
PROOF = """
import fwbench


@fwbench.proof(fwbench.Model("mine", torch="mine:net", jax="mine:nothing", inputs=fwbench.normal(2)))
def test_proof(fwbench_prove):
    fwbench_prove()
"""


@pytest.fixture
def project(tmp_path):
    """Make a project in a folder of this name, and return what runs a module of Python in it."""

    def make(name):
        folder = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(folder)
        files = {
            "conftest.py": 'pytest_plugins = ["fwbench.plugin"]\n',
            "test_suite.py": benchmarks(sizes=[1, 2]),
            "test_proof.py": PROOF,
            "mine.py": "def net(x):\n    return x\n",
        }
        for file, text in files.items():
            with open(os.path.join(folder, file.encode()), "w") as made:
                made.write(text)
        # No repository: what Git prints of such a path is another matter.
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "GIT_CEILING_DIRECTORIES": str(tmp_path)}
        environment.pop("PYTEST_XDIST_WORKER", None)

        def run(*command):
            given = {"cwd": folder, "env": environment, "stdin": subprocess.DEVNULL, "timeout": 300}
            done = subprocess.run([sys.executable, "-m", *command], capture_output=True, **given)
            output = (done.stdout + done.stderr).decode(errors="replace")
            assert "Traceback" not in output, output
            assert "INTERNALERROR" not in output, output
            return done.returncode, output

        return folder, run

    return make


def saved(folder):
    return sorted(
        os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names if name.endswith(b".json")
    )


@needs("resume")
@pytest.mark.slow
@needs("proofs")
@needs("history")
@pytest.mark.parametrize("kind", ODD)
def test_a_run_is_measured_saved_and_read_by_every_command(project, fault, kind):
    folder, run = project(ODD[kind])
    suite = ("pytest", *ALONE, *FAST, "--benchmark-only", "--benchmark-autosave", "test_suite.py")
    code, output = run(*suite)
    assert code == 0, output
    assert run("fwbench", "report", "--format=markdown,csv,latex")[0] == 0
    assert len(saved(os.path.join(folder, b".benchmarks"))) == 1
    fault(KIND, kind, output.splitlines()[-2])
    code, output = run(*suite, "--fwbench-resume")
    assert code == 0
    assert "2 of 2 benchmarks taken from" in output
    base, head = saved(os.path.join(folder, b".benchmarks"))
    # The harness's own benchmarks are no part of a comparison.
    for command in (["compare", base, head], ["history"]):
        code, output = run("fwbench", *command)
        assert code == 4
        assert "no measured benchmark" in output or "no run that has benchmarks" in output
    code, output = run("fwbench", "prove")
    assert code == 4
    assert "the module 'mine' has no 'nothing'" in output
    fault(KIND, f"{kind}: resumed, compared and proved", output)

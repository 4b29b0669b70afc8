"""What the report's tests share: a report written by the command, from a record on disk."""

from pathlib import Path

import pytest

from fwbench.cli import main
from tests.unit.recorded import write

GOLDEN = Path(__file__).with_name("golden.json")


@pytest.fixture(scope="session")
def golden(tmp_path_factory):
    """The folder of the golden record's report, in every format."""
    out = tmp_path_factory.mktemp("golden")
    assert main(["report", str(GOLDEN), "--out", str(out)]) == 0
    return out


@pytest.fixture
def report(tmp_path, capsys):
    """Write a report of records (as JSON primitives) and return its folder."""

    def run(*records, formats="html,markdown,latex,csv"):
        paths = [write(tmp_path / f"{number}.json", record) for number, record in enumerate(records)]
        assert main(["report", *map(str, paths), "--out", str(tmp_path / "out"), "--format", formats]) == 0
        return tmp_path / "out"

    return run

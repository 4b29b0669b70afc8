"""Faults that a history of runs meets."""

import json

from fwbench.ext.history.trends import histories
from fwbench.record.reading import read, runs
from tests.unit.faults.test_records import COPIES, command, lanes
from tests.unit.recorded import saved, write


def test_a_copied_file_in_the_storage_is_no_further_run(tmp_path, fault):
    """Neither for a trend nor for the best level that a gate holds a run to."""
    for number in range(3):
        write(tmp_path / f"{number}.json", saved(*lanes(0, at=number), datetime=f"2026-11-2{number}T00:00:00+00:00"))
    write(tmp_path / "copy.json", json.loads((tmp_path / "1.json").read_text()))
    (history,) = histories(read(path) for path in runs(tmp_path))
    assert len(history.runs) == 3
    code, out, _ = command("history", tmp_path, "--out", tmp_path / "history.html")
    assert code == 0
    fault(COPIES, "a storage in which somebody has copied a file", out.splitlines()[0])

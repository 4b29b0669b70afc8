"""The minutes of a run on a GPU, by the costs of records: `python -m tests.minutes` makes the tables of docs/gpu.md."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.unit.shared import finish

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")


def rehearse(*options):
    """The tables, and by run and workload the seconds until it had its answer."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = finish(sys.executable, "-m", "tests.minutes", *options, cwd=ROOT, env=own)
    assert done.returncode == 0, done.stderr
    tables, answered = done.stdout.rsplit("\n\n", 1)
    return tables, json.loads(answered)


@pytest.fixture(scope="module")
def rehearsed():
    """Of IEEE float32 alone."""
    return rehearse("--fwbench-precision=fp32")


def test_each_workload_is_answered_and_most_after_about_ten_minutes_though_all_is_compiled(rehearsed):
    first, _ = rehearsed[1]
    assert len(first) == 8
    assert sum(seconds <= 600 for seconds in first.values()) >= 5
    # One training step takes a minute and a half to compile in three lanes.
    *others, last = sorted(first.values())
    assert first["-resnet50-train_step-b32"] == last < 820
    assert max(others) < 630


def test_a_next_run_answers_all_within_seven_minutes(rehearsed):
    _, again = rehearsed[1]
    assert len(again) == 8
    assert max(again.values()) <= 420


def test_the_page_shows_these_minutes(rehearsed):
    missing = [row for row in rehearsed[0].splitlines() if row not in PAGE]
    assert not missing, "docs/gpu.md needs these rows:\n" + "\n".join(missing)


@pytest.mark.slow
def test_other_arithmetic_comes_after_the_answers_in_fp32(rehearsed):
    tables, (first, again) = rehearse()
    (whole,) = (row.split(" | ")[1:] for row in tables.splitlines() if row.startswith("| all |"))
    assert "takes {}, and the next run {} (`python -m tests.minutes`)".format(
        *(cell.strip(" |") for cell in whole)
    ) in (" ".join(PAGE.split()))
    lower = [name for name in first if name.endswith(("tf32", "bf16"))]
    assert len(lower) == 4
    fp32 = {name: seconds for name, seconds in first.items() if name not in lower}
    assert fp32 == rehearsed[1][0]
    assert max(fp32.values()) < min(first[name] for name in lower)
    assert again.keys() == first.keys()

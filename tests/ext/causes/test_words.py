"""The words of `explain` and `bisect`: those of the command line, and those that are said."""

import dataclasses
import math

import pytest

from fwbench.compare.findings import Verdict
from fwbench.errors import UserError
from fwbench.ext.causes import searching, sentences
from fwbench.ext.causes.steps import Stretch
from fwbench.report.verdicts import lines
from tests.unit.test_cli import given  # noqa: F401 (a fixture)
from tests.unit.test_verdicts import finding, outcome


@pytest.mark.parametrize(
    ("words", "ends"),
    [
        (["main~3..main"], ("main~3", "main", [])),
        (["origin/main..HEAD", "mode=train_step"], ("origin/main", "HEAD", ["mode=train_step"])),
        (["main~3", "main", "mode=train_step"], ("main~3", "main", ["mode=train_step"])),
        (["jax==0.10.0..0.12.0"], ("jax==0.10.0", "jax==0.12.0", [])),
        (["jax==0.10.0", "jax==0.12.0"], ("jax==0.10.0", "jax==0.12.0", [])),
        (["../old/bin/python", "a/../bin/python"], ("../old/bin/python", "a/../bin/python", [])),
        (["main", ". XLA_FLAGS=--x"], ("main", ". XLA_FLAGS=--x", [])),
    ],
)
def test_base_and_head_are_two_words_or_one(words, ends):
    assert searching.ends(words[0], words[1:]) == ends


@pytest.mark.parametrize("word", ["main", "main..", "..main", "../python", "main...feature"])
def test_one_side_alone_is_refused(word):
    with pytest.raises(UserError, match="one side alone"):
        searching.ends(word, [])


@pytest.mark.parametrize(
    ("command", "words", "fields"),
    [
        ("bisect", ["A..B", "--model=m", "--lane=jax", "batch_size=8", "--minutes=1", "mode=fit"], 2),
        ("explain", ["A", "B", "--model=m", "--lane=jax", "batch_size=8"], 1),
    ],
)
def test_fields_may_stand_behind_options(given, command, words, fields):
    assert given(command, *words).fields == [word for word in words if "=" in word and word[0] != "-"][-fields:]


def test_a_change_of_three_magnitudes_is_told_in_times():
    of_times = Verdict("regressed", 1459.0, (1400.0, 1500.0), 0.95, 10)
    shown = "\n".join(lines(outcome(dataclasses.replace(finding("regressed"), verdict=of_times))))
    assert "1,459 times" in shown
    assert "1,400 times to 1,500 times (95%)" in shown
    told = sentences.change(Stretch(0, 1, -math.log(1459), -math.log(1500), -math.log(1400), 4))
    assert told == "1/1,459 (1/1,500 to 1/1,400)"

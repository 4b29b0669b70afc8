"""The words of `explain` and `bisect`."""

import pytest

from fwbench.errors import UserError
from fwbench.ext.causes import searching
from tests.unit.test_cli import given  # noqa: F401 (a fixture)


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

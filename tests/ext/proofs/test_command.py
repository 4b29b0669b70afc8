"""What `fwbench prove` says of a proof."""

from fwbench.ext.proofs import command, process
from fwbench.models.store import Key, Power, Proved


def line(**fields):
    proved = Proved(
        "mine", "jax", "torch", "proved", "", {"output": 1e-14}, {"output": 1e-10}, Key("", {}, {}), **fields
    )
    return command._line(proved, differs=False)


def test_some_untried_sides_are_listed():
    assert "not tried" not in line()
    assert ". not tried: a; b; c; d; e; f; and 2 more" in line(untried=tuple("abcdefgh"))
    assert "computes the same as torch, but for 1 choice not tried, at 1 points" in line(untried=("a",), points=("b",))


def test_mistakes_that_would_not_be_found_are_listed():
    missed = tuple(f"clip at {-number} (mixer.py:{number})" for number in range(1, 9))
    assert line(power=Power(190, 190, (), 900)).endswith("The proof would have found 190 of 190 planted mistakes")
    assert line(power=Power(190, 189, missed[1:2], 900)).endswith(
        "would have found 189 of 190 planted mistakes; not found: clip at -2 (mixer.py:2)"
    )
    assert line(power=Power(190, 182, missed, 900)).endswith("clip at -6 (mixer.py:6), and 2 more")


def test_the_power_of_two_modes_is_told_together():
    both = process._together([Power(9, 8, ("a", "b"), 9, ("eval",)), Power(8, 8, ("b",), 20, ("train",))])
    assert both == Power(17, 16, ("a", "b"), 29, ("eval", "train"))
    assert "16 of 17 mistakes planted in inference and training; not found: a, b" in line(power=both)

"""What a reader sees of a comparison: the gravest first, in the terminal and in Markdown."""

import math

import numpy as np
import pytest

from fwbench.compare.findings import ORDER, Finding, Outcome, Verdict
from fwbench.report.verdicts import badge, headline, lines, markdown


def finding(kind="unchanged", name="torch-mlp-inference-b1", metric="latency", **fields):
    numbers = {"base": 0.001, "head": 0.0013, "replicates": "5 and 5 processes"}
    verdict = Verdict("unchanged", 1.3, (1.25, 1.351), 0.95, 5)
    return Finding(name, kind, metric, **{**numbers, "verdict": verdict, **fields})


def outcome(*findings, **fields):
    return Outcome("a.json", "b.json", findings, **fields)


def of_kinds(kinds, **fields):
    return outcome(*(finding(kind, name=f"it-{number}", **fields) for number, kind in enumerate(kinds)))


PASSES, NOTHING = "no benchmark fails the run", "nothing was compared"


@pytest.mark.parametrize(
    ("kinds", "exit_code", "reason", "message", "colour"),
    [
        (["unchanged"], 0, PASSES, "1 unchanged", "brightgreen"),
        (["unchanged", "improved", "new", "program"], 0, PASSES, "1 improved", "brightgreen"),
        (["unchanged", "unchanged", "inconclusive", "new"], 0, PASSES, "2 unchanged", "brightgreen"),
        (["inconclusive"], 0, PASSES, "1 inconclusive", "lightgrey"),
        (["unchanged", "missing"], 1, "1 missing", "1 missing", "red"),
        (["unchanged", "changed"], 1, "1 changed", "1 changed", "red"),
        (["regressed", "failed", "improved", "regressed"], 1, "1 failed, 2 regressed", "1 failed", "red"),
        (["regressed", "improved", "program"], 1, "1 regressed", "1 regressed", "red"),
        (["incomparable", "regressed"], 1, "1 regressed", "1 regressed", "red"),
        (["unchanged", "incomparable"], 4, "1 incomparable", "1 not comparable", "lightgrey"),
        (["new"], 4, NOTHING, "1 new", "lightgrey"),
        (["program"], 4, NOTHING, "nothing compared", "lightgrey"),
        ([], 4, NOTHING, "nothing compared", "lightgrey"),
    ],
)
def test_an_exit_code_its_reason_and_a_badge_tell_the_gravest_difference(kinds, exit_code, reason, message, colour):
    found = of_kinds(kinds)
    assert (found.exit_code, found.reason(exit_code)) == (exit_code, reason)
    assert badge(found) == {"schemaVersion": 1, "label": "benchmarks", "message": message, "color": colour}


@pytest.mark.parametrize(("kinds", "code"), [(["unchanged"], 1), (["unchanged"], 4), (["regressed"], 2)])
def test_an_exit_code_of_pytests_own_is_told_as_that(kinds, code):
    """A test that is no benchmark has failed, or a file could not be written."""
    assert of_kinds(kinds).reason(code) == f"pytest ended with exit code {code}"


@pytest.mark.parametrize(
    ("kinds", "exit_code"),
    [
        (["unchanged", "regressed"], 0),
        (["changed"], 0),
        (["failed", "missing", "unchanged"], 0),
        (["regressed", "incomparable"], 4),
        # Nothing was compared.
        (["failed", "missing"], 4),
    ],
)
def test_what_a_test_was_judged_by_counts_no_second_time(kinds, exit_code):
    found = of_kinds(kinds, in_test=True)
    assert found.exit_code == exit_code
    assert outcome(*found.findings, finding("missing", name="another")).exit_code == 1


def test_a_row_tells_values_change_and_interval_in_humane_units():
    _, header, row, last = lines(outcome(finding("regressed")))
    assert header.split() == ["benchmark", "metric", "base", "head", "change", "interval", "from", "verdict"]
    assert " ".join(row.split()) == (
        "torch-mlp-inference-b1 latency 1.00 ms 1.30 ms +30.0% +25.0% to +35.1% (95%) 5 and 5 processes regressed"
    )
    assert last == "1 benchmark: 1 regressed"


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("peak_memory", 3 * 2**20, "3.00 MiB"),
        ("throughput", 1234.0, "1234"),
        ("energy", 0.0021, "2.10 mJ"),
        ("cpu_time", None, ""),
    ],
)
def test_every_metric_has_its_unit(metric, value, shown):
    row = lines(outcome(finding(metric=metric, base=value, head=value)))[2]
    assert row.partition(metric)[2].startswith(f"  {shown}")


@pytest.mark.parametrize(
    ("metric", "interval", "confidence", "shown"),
    [
        ("latency", (0.0, math.inf), 0.95, "unknown"),
        ("latency", (1.31, 1.31), 0.0, "unknown"),
        ("latency", (0.9, 1.1), 0.95, "-10.0% to +10.0% (95%)"),
        # Two processes that happen to agree are no proof.
        ("program_memory", (1.3, 1.3), 0.95, "+30.0% to +30.0% (95%)"),
        ("program_memory", (1.3, 1.3), 1.0, "exact"),
    ],
)
def test_an_interval_says_when_it_is_none(metric, interval, confidence, shown):
    verdict = Verdict("unchanged", 1.3, interval, confidence, 1)
    assert f"  {shown}  " in lines(outcome(finding(metric=metric, verdict=verdict)))[2]


def test_the_gravest_stands_first_and_each_benchmark_counts_once():
    kinds = [finding(kind, name=f"it-{kind}") for kind in reversed(ORDER)]
    shown = outcome(*kinds, finding("unchanged", name="it-regressed", metric="throughput"))
    rows = [line for line in lines(shown) if line.startswith("it-") and "processes" in line]
    assert [row.split()[0] for row in rows] == [f"it-{kind}" for kind in [*ORDER, "regressed"]]
    assert headline(shown) == (
        "9 benchmarks: 1 failed, 1 regressed, 1 changed, 1 missing, 1 not comparable, 1 inconclusive, "
        "1 improved, 1 new, 1 unchanged; 1 computing something else; 1 with a changed program"
    )


def test_a_changed_program_is_told_before_any_number():
    program = finding("program", name="it", metric="", note="3 more add")
    shown = lines(outcome(finding("failed", name="x", metric="", note="killed"), finding("regressed"), program))
    assert shown[1] == "it: with a changed program: 3 more add"
    assert shown.index("x: failed: killed") > shown.index(next(line for line in shown if line.startswith("benchmark")))
    text = markdown(outcome(finding("regressed"), program))
    assert text.index("3 more add") < text.index("| benchmark |")


def test_a_note_that_many_share_is_told_once():
    shown = lines(outcome(*(finding("missing", name=f"it-{n}", metric="", note="why") for n in range(8))))
    assert "it-0, it-1, it-2, it-3, it-4, it-5 and 2 more: missing: why" in shown


def test_a_note_names_the_metric_that_it_is_about():
    """The benchmark itself may have regressed."""
    why = {"note": "two pairs do not decide"}
    found = outcome(
        finding("regressed"), *(finding("inconclusive", metric=name, **why) for name in ("cpu_time", "peak_memory"))
    )
    assert "torch-mlp-inference-b1 (cpu_time, peak_memory): inconclusive: two pairs do not decide" in lines(found)


def test_a_refusal_is_of_no_benchmark():
    refused = outcome(finding("incomparable", name="all", metric="", note="cpu differs"))
    assert lines(refused) == ["b.json, against a.json", "all: not comparable: cpu differs", "nothing was compared"]
    assert headline(outcome()) == "nothing was compared"


def test_the_cost_is_told_where_it_is_known():
    shown = outcome(finding(), finding(name="x"), finding(name="x", metric="cpu_time"), seconds=30.0)
    assert headline(shown).endswith("; 15.0 s a benchmark")


def test_markdown_leaves_out_what_is_unchanged():
    text = markdown(outcome(finding("regressed"), finding(name="quiet"), notes=["jax 1 in the baseline, 2 here"]))
    assert text.startswith("**fwbench: 2 benchmarks: 1 regressed, 1 unchanged**\n\n| benchmark | metric |")
    assert "| torch-mlp-inference-b1 | latency | 1.00 ms | 1.30 ms | +30.0% |" in text
    assert "quiet" not in text
    assert text.endswith("1 unchanged\n- jax 1 in the baseline, 2 here\n\nb.json, against a.json.\n")
    assert markdown(outcome(finding())).count("|") == 0


def test_names_mean_nothing_to_markdown():
    name = "x.py::test[a|b]*<img src=x>*_c_`d`\n\n# [e](f) &amp; ~g~ \\| http"
    text = markdown(outcome(finding("regressed", name=name, note="n|o")))
    row = next(line for line in text.splitlines() if "test" in line)
    assert row.startswith(
        r"| x.py::test\[a&#124;b\]\*&lt;img src=x&gt;\*\_c\_\`d\` \# \[e\](f) &amp;amp; \~g\~ \\&#124; http | latency |"
    )
    assert "n&#124;o" in text


def test_of_hundreds_of_rows_those_that_say_something_are_shown():
    found = [finding(name=f"test_{number}") for number in range(99)]
    shown = lines(outcome(*found, finding("regressed", name="test_slow")))
    assert [line for line in shown if line.startswith("test_")] == [
        line for line in shown if line.startswith("test_slow")
    ]
    assert [line for line in shown if "99 unchanged" in line]
    assert sum(line.startswith("test_") for line in lines(outcome(*found[:50]))) == 50


def test_of_hundreds_of_tests_a_pull_request_sees_the_differences_alone():
    """Neither rows nor notes of the others, which are in one line; of those that are not decided some are named."""
    found = [
        finding(name=f"same_{n}", metric=metric, note=f"{n}") for n in range(300) for metric in ("latency", "cpu_time")
    ]
    found += [
        finding(
            "inconclusive", name=f"unsure_{n}", note=f"{n}", verdict=Verdict("inconclusive", ratio, (0, 9), 0.95, 3)
        )
        for n, ratio in enumerate(np.linspace(0.5, 1.9, 40))
    ]
    found += [
        finding("regressed", name="slow"),
        finding("improved", name="fast"),
        finding("failed", name="x", metric=""),
    ]
    text = markdown(outcome(*found))
    assert [row.split()[1] for row in text.splitlines() if row.startswith("| ")] == ["benchmark", "---", "slow", "fast"]
    assert "same" not in text
    (line,) = (line for line in text.splitlines() if "unsure" in line)
    assert "600 unchanged, 40 inconclusive" in line
    # As a factor, half as long is farther from 1 than 1.9 times as long.
    assert r"(unsure\_0 -50.0%, unsure\_39 +90.0%, unsure\_1 -46.4%, " in line
    assert line.count("unsure") == 6
    assert len(text.splitlines()) < 15

"""What suites of known truth say: counted as they are, with exact intervals."""

import pytest
from scipy import stats

from fwbench.compare.evidence import read
from fwbench.ext.trials.rates import RULES, clopper_pearson, rates, report
from tests.unit.faults.test_records import suite_line
from tests.unit.test_evidence import HEADER, SUITES, write


@pytest.mark.parametrize(("found", "of"), [(0, 40), (1, 40), (19, 20), (20, 20)])
def test_the_interval_is_clopper_and_pearsons(found, of):
    """Its ends are quantiles of the beta distribution."""
    low, high = clopper_pearson(found, of)
    assert low == pytest.approx(stats.beta.ppf(0.025, found, of - found + 1) if found else 0.0)
    assert high == pytest.approx(stats.beta.ppf(0.975, found + 1, of - found) if found < of else 1.0)


def test_an_unchanged_suite_counts_once_and_a_planted_benchmark_by_itself():
    found = rates(SUITES, lambda benchmark: benchmark["kind"] == "regressed")
    assert found == {0.0: (1, 3), 0.05: (1, 2), 0.1: (1, 1)}


@pytest.mark.parametrize(
    ("rule", "hidden"),
    [("mean:5%", [1.0] * 9 + [1.4]), ("median:5%", [1.0] * 6 + [2.0] * 4), ("min:5%", [1.0] + [2.0] * 9)],
)
def test_the_rules_of_others_judge_by_their_statistic_alone(rule, hidden):
    fails = RULES[rule]
    assert fails([1.0] * 10, [1.06] * 10)
    assert not fails([1.0] * 10, [1.04] * 10)
    assert not fails([1.0] * 10, hidden)
    assert not fails([1.06] * 10, [1.0] * 10)


@pytest.mark.parametrize("rule", ["t-test, p < 0.05", "Mann-Whitney, p < 0.01"])
def test_tests_on_rounds_fail_a_head_that_is_slower_at_all(rule):
    base = [1.0 + index / 1000 for index in range(20)]
    assert RULES[rule](base, [x * 1.02 for x in base])
    assert not RULES[rule]([x * 1.02 for x in base], base)
    assert not RULES[rule](base, base)


def test_the_report_has_ours_and_other_rules_on_the_same_data(tmp_path):
    text = report(read(write(tmp_path / "x.jsonl", *SUITES)))

    def rate(found, of):
        low, high = clopper_pearson(found, of)
        return f"{found}/{of} ({low:.0%} to {high:.0%})"

    assert text[0] == "| rule | suites | unchanged suites that fail | +5% found | +10% found |"
    assert text[2].startswith(f"| duet | all | {rate(1, 3)} | {rate(1, 2)} | {rate(1, 1)} |")
    assert text[3].startswith(f"| duet | quiet | {rate(0, 2)} | {rate(1, 2)} | - |")
    assert text[4].startswith(f"| duet | loaded | {rate(1, 1)} | - | {rate(1, 1)} |")
    rows = {row.split(" | ")[0].strip("| "): row for row in text[2:]}
    assert rows["mean:5%"] == f"| mean:5% | all | {rate(0, 3)} | {rate(1, 2)} | {rate(0, 1)} |"
    assert rows.keys() >= RULES.keys()
    assert any("5 suites, 10 verdicts, 1 of them inconclusive" in line for line in text)
    assert text[-1] == "Screening took 8.2 s a benchmark (at most 10.0), confirming 50 s a suspect."


def test_a_report_over_nothing_says_so(tmp_path):
    assert report(read(write(tmp_path / "x.jsonl"))) == ["No suite is done yet."]


def test_the_report_names_each_damaged_line(tmp_path):
    path = write(tmp_path / "x.jsonl", suite_line(0), header=HEADER)
    path.write_bytes(path.read_bytes() + b'{"slowdown": 0}\n')
    assert sum(line.startswith("Left out: line") for line in report(read(path))) == 1

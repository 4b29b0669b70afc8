"""The cause of a regression that a gate has found."""

import dataclasses
import signal

import pytest

import fwbench.git
from fwbench.compare.findings import Verdict
from fwbench.errors import UserError
from fwbench.ext.causes import regression
from fwbench.ext.causes.explaining import Explanation
from fwbench.ext.causes.steps import Search
from fwbench.worker.client import interrupts
from fwbench.worker.turns.checkouts import WORKING_TREE
from tests.unit.test_duet_gate import given, playing, project, run  # noqa: F401


@pytest.fixture
def explaining(monkeypatch):
    """Searches for the parts of a difference: the second of two parts makes it; or an error that ends them.

    Returns what was searched for, a tuple each: base's commit, the commit of head's files, the batch size, the metric.
    """

    class Asked(list):
        error = None

    asked = Asked()

    def explain(search_for, stated, top, on_comparison):
        metric = search_for.metric
        asked.append((stated[0].revision, stated[1].revision, search_for.subject.batch_size, metric))
        if asked.error:
            raise asked.error
        search = Search(3, lambda first, last: -0.05 * (first < 2 <= last), on_comparison)
        search.run()
        return Explanation(["a.py, line 1", "b.py, line 2"], search, metric=metric)

    monkeypatch.setattr(regression, "explain", explain)
    return asked


def test_in_cis_profile_the_part_that_made_the_regression_is_named_first(run, project, explaining):
    (project.path / "b.py").write_text("changed = 1")
    result = run({2: "regressed"}, "--fwbench-profile=ci")
    assert result.ret == 1
    ((base, head, *what),) = explaining
    assert what == [2, "latency"]
    assert (base, head) == (fwbench.git.commit(project.path, "HEAD"), WORKING_TREE)
    result.stdout.fnmatch_lines(
        [
            "torch-mlp-inference-b2: HEAD's latency differs from BASE's by +5.1% * +5.1% * comes from b.py, line 2: "
            "it is gone with that as in BASE.",
            "torch 2.0 in base, 2.1 in head",
        ]
    )


def test_the_worst_regression_of_any_metric_is_explained_by_that_metric(run, given, explaining, monkeypatch):
    comparisons = given.comparisons

    def hungry():
        found = comparisons()
        (three,) = (workload for workload in found if workload.batch_size == 3)
        memory = {"peak_memory": Verdict("regressed", 1.4, (1.39, 1.41), 0.95, 10, 0.001)}
        pairs = [
            dataclasses.replace(pair, values={side: {**of, "peak_memory": 1e9} for side, of in pair.values.items()})
            for pair in found[three].screening
        ]
        worse = {**found[three].verdicts, **memory}
        return {**found, three: dataclasses.replace(found[three], kind="regressed", verdicts=worse, screening=pairs)}

    monkeypatch.setattr(given, "comparisons", hungry)
    result = run({2: "regressed"}, "--fwbench-profile=ci")
    assert [asked[2:] for asked in explaining] == [(3, "peak_memory")]
    result.stdout.fnmatch_lines(["torch-mlp-inference-b3: HEAD's peak_memory differs from BASE's by *"])


def test_only_a_regression_in_cis_profile_is_explained(run, explaining):
    assert run({2: "regressed"}).ret == 1
    assert run({2: "improved"}, "--fwbench-profile=ci").ret == 0
    assert not explaining


def test_a_regression_that_cannot_be_explained_says_why(run, explaining):
    explaining.error = UserError("nothing that this workload uses differs.")
    result = run({2: "regressed"}, "--fwbench-profile=ci")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["torch-mlp-inference-b2: not explained: nothing that this workload uses differs."])


def test_the_verdicts_are_told_where_the_search_for_the_part_is_interrupted(run, explaining):
    explaining.error = interrupts.Ended(signal.SIGTERM)
    run({2: "regressed"}, "--fwbench-profile=ci").stdout.fnmatch_lines(["torch-mlp-inference-b2 *latency *regressed*"])

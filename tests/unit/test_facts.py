"""Facts about a machine: under which conditions and for how long they hold."""

import dataclasses
import os
import time

import pytest

from fwbench.machine.facts import ARITHMETIC, CEILINGS, RESTING, Facts, asked, content, metrics
from fwbench.record.measurement import Metric
from tests.unit.recorded import MACHINE

RATES = {"compute_ceiling": Metric(1e11, "a test", library="a library")}
WHERE = {"lane": "torch", "versions": {"torch": "2"}}


def of(folder, run="first", **changes):
    return Facts(asked(folder, run, dataclasses.replace(MACHINE, **changes)), "torch-mlp")


def stored(folder, kind=CEILINGS, quiet=True):
    found = of(folder)
    found.note(kind, WHERE, content(RATES))
    found.store(quiet=quiet)


def known(facts, kind=CEILINGS, conditions=WHERE):
    return facts.known(kind, conditions, metrics)


def test_a_fact_holds_for_its_machine_and_conditions_and_says_where_it_was_found(tmp_path):
    stored(tmp_path)
    (rate,) = known(of(tmp_path, "second", kernel="Linux 7")).values()
    assert (rate.value, rate.library) == (1e11, "a library")
    assert rate.source == f"a test, in torch-mlp on {time.strftime('%Y-%m-%d', time.gmtime())}"
    for change in (
        *({"threads": 1}, {"cpu": "Another CPU"}, {"accelerator": "A GPU"}, {"power_limit": 300.0}),
        *({"driver": "580"}, {"device": "gpu"}),
    ):
        assert known(of(tmp_path, **change)) is None
    for conditions in ({**WHERE, "versions": {"torch": "3"}}, {"lane": "torch"}, {}):
        assert known(of(tmp_path), conditions=conditions) is None
    assert known(of(tmp_path), RESTING) is None


@pytest.mark.parametrize(
    ("kind", "quiet", "here", "later"),
    [
        (ARITHMETIC, True, True, True),
        (ARITHMETIC, False, True, True),
        (CEILINGS, True, True, True),
        (CEILINGS, False, True, False),
        (RESTING, True, True, False),
        (RESTING, False, False, False),
    ],
)
def test_how_long_a_fact_holds_depends_on_its_kind_and_on_what_disturbed_it(tmp_path, kind, quiet, here, later):
    stored(tmp_path, kind, quiet)
    assert (known(of(tmp_path), kind) is not None) is here
    assert (known(of(tmp_path, "second"), kind) is not None) is later


def test_a_fact_is_found_out_again_after_a_month(tmp_path):
    stored(tmp_path)
    (file,) = tmp_path.iterdir()
    month_ago = time.time() - 31 * 86400
    os.utime(file, (month_ago, month_ago))
    assert known(of(tmp_path)) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"run": null, "benchmark": "a", "on": "b", "content": [1]}', "\xff"])
def test_a_damaged_file_is_no_fact(tmp_path, text):
    stored(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(text, encoding="latin-1")
    assert known(of(tmp_path)) is None


def test_a_metric_without_a_number_is_no_fact(tmp_path):
    found = of(tmp_path)
    found.note(CEILINGS, WHERE, content({"compute_ceiling": Metric(None, "a test", "no room")}))
    found.store(quiet=True)
    assert known(of(tmp_path)) is None


def test_who_is_told_nothing_knows_and_stores_nothing(tmp_path):
    nobody = Facts()
    nobody.note(CEILINGS, WHERE, content(RATES))
    nobody.store(quiet=True)
    assert (known(nobody), nobody.shared, nobody.outdated_folders()) == (None, False, [])


def test_a_folder_that_cannot_be_written_loses_nothing_else(tmp_path):
    (tmp_path / "file").write_text("")
    stored(tmp_path / "file")
    assert known(of(tmp_path / "file")) is None

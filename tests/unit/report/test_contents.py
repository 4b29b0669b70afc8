"""What stands behind the numbers is said of all of them, not of the first."""

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fwbench.record.reading import Record
from fwbench.report import contents
from fwbench.report.cases import settings
from tests.unit.recorded import MACHINE, measured, metric


def parity(framework, weights="abc", current=True, arithmetic="fp32", **fields):
    stamp = {"errors": {"logits": 1e-14, "gradients": 1e-12}, "versions": {}, "current": current}
    probe = {"matmul": {"error": 1e-7, "arithmetic": arithmetic}}
    return measured(framework, parity={"weights": weights, "proof": stamp, "probe": probe}, **fields)


def setting(*measurements, **fields):
    record = Record(Path("x.json"), datetime.now(UTC), 1, {}, MACHINE, {}, "quick", measurements, **fields)
    (found,) = settings([record])
    return found


def row(table, number=0):
    return dict(zip((column.name for column in table.columns), table.rows[number].values, strict=True))


def test_lanes_that_began_with_other_weights_are_called_different():
    same = row(contents.parity(setting(parity("torch"), parity("jax"))))
    assert (same["weights"], same["proof"], same["logits"]) == ("the same (abc)", "current", 1e-14)
    different = row(contents.parity(setting(parity("torch"), parity("jax", "def"))))
    assert different["weights"] == "different: not comparable"


def test_seeds_begin_with_other_weights_by_right():
    found = row(contents.parity(setting(parity("torch"), parity("torch", "def", seed=1), parity("jax"))))
    assert found["weights"] == "the same (abc, def)"


@pytest.mark.parametrize("stale", ["torch", "jax"])
def test_one_measurement_without_a_current_proof_is_enough_to_say_so(stale):
    lanes = [parity(lane, current=lane != stale) for lane in ("torch", "jax")]
    assert row(contents.parity(setting(*lanes)))["proof"] == "of other sources: prove again"


def test_a_model_without_a_proof_says_so():
    assert row(contents.parity(setting(measured("torch"))))["proof"] == "no proof"


def test_the_arithmetic_of_every_lane_is_named():
    found = row(contents.parity(setting(parity("torch", arithmetic="tf32"), parity("jax"))))
    assert found["arithmetic"] == "jax fp32, torch tf32"


def test_sources_are_named_once_without_their_counts():
    sources = ("24 calls, one wait every 24", "7 calls, one wait every 3")
    lanes = [
        dataclasses.replace(measured(batch_size=n), metrics={"throughput": metric(1.0, source=source)})
        for n, source in enumerate(sources, 1)
    ]
    found = row(contents.sources(setting(*lanes)))
    assert (found["metric"], found["unit"], found["read from"]) == ("throughput", "1/s", "n calls, one wait every n")


def test_notes_of_a_file_are_among_what_is_missing():
    assert "x.json: it was cut." in contents.missing(setting(measured(), notes=("it was cut",)))

"""What stands behind the numbers is said of all of them, not of the first."""

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fwbench.compare.cases import cases, settings
from fwbench.record.reading import Record
from fwbench.report import contents
from tests.unit.recorded import MACHINE, measured, metric, proof
from tests.unit.report.parsing import values
from tests.unit.shared import needs


def parity(framework, weights="abc", state="", arithmetic="fp32", **fields):
    probe = {"matmul": {"error": 1e-7, "arithmetic": arithmetic}}
    return measured(framework, parity={"weights": weights, "proof": proof(framework, state), "probe": probe}, **fields)


def setting(*measurements, **fields):
    record = Record(Path("x.json"), datetime.now(UTC), {}, MACHINE, {}, "quick", measurements, **fields)
    (found,) = settings([record])
    return found


def row(table, number=0):
    return values(table)[number]


@needs("proofs")
def test_lanes_that_began_with_other_weights_are_an_error():
    same = row(contents.parity(setting(parity("torch"), parity("jax"))))
    assert (same["weights"], same["proof"]) == ("the same (abc)", "torch reference, jax proved")
    assert (same["output"], same["gradients"]) == (1e-14, 1e-12)
    other = setting(parity("torch"), parity("jax", "def"))
    assert row(contents.parity(other))["weights"] == "error: different, so not comparable"
    assert contents.remarks(other)[0] == (
        "error: torch and jax began with different weights in mlp, so their numbers cannot be compared; "
        "`fwbench prove mlp` lists them"
    )


@pytest.mark.parametrize(
    ("lanes", "column", "said"),
    [
        # Seeds begin with other weights by right.
        ([parity("torch"), parity("torch", "def", seed=1), parity("jax")], "weights", "the same (abc, def)"),
        # One measurement without a current proof is enough.
        (
            [*map(parity, ("torch", "jax")), parity("jax", state="stale", batch_size=2)],
            "proof",
            "torch reference, jax proved, jax stale",
        ),
        ([measured("torch", parity={})], "proof", "? missing"),
        ([parity("torch", arithmetic="tf32"), parity("jax")], "arithmetic", "jax fp32, torch tf32"),
    ],
)
def test_what_every_lane_began_with_was_proved_by_and_computes_in_is_named(lanes, column, said):
    assert row(contents.parity(setting(*lanes)))[column] == said


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


def test_what_differs_between_the_records_of_one_machine_is_told():
    newer = dataclasses.replace(MACHINE, kernel="Linux 6.2")
    records = [
        Record(Path("x.json"), datetime.now(UTC), {}, machine, {}, "quick", (measured(overhead_s=number),))
        for number, machine in enumerate((MACHINE, newer, MACHINE))
    ]
    (found,) = settings(records)
    told = {row(contents.fingerprint(found), n)["what"]: row(contents.fingerprint(found), n)["is"] for n in range(9)}
    assert (told["machine: kernel"], told["machine: cpu"]) == ("Linux 6.1, Linux 6.2", "Some CPU")


@pytest.mark.parametrize(
    ("precision", "attention", "as_asked", "told"),
    [
        ("tf32", "fp32", True, "torch fp32 in attention, torch tf32"),
        ("tf32", "tf32", True, "torch tf32"),
        ("fp32", "tf32", False, "torch fp32, torch tf32 in attention"),
        ("tf32", "unknown", False, "torch tf32, torch unknown in attention"),
    ],
)
def test_attention_may_be_more_exact_than_the_precision_and_the_table_says_so(precision, attention, as_asked, told):
    probe = {"matmul": {"error": 1e-7, "arithmetic": precision}, "attention": {"error": 1e-7, "arithmetic": attention}}
    given = measured(precision=precision, parity={"weights": "abc", "probe": probe})
    (case,) = cases([given])
    assert case.as_asked == as_asked
    assert row(contents.parity(setting(given)))["arithmetic"] == told

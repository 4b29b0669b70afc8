"""Any lane can be the baseline, and a report of five lanes reads as well as one of two."""

import pytest

from fwbench.commands.cli import main
from fwbench.compare.cases import baseline, cases
from fwbench.report.answers import answers, headline
from fwbench.report.ratios import ratios, sentences
from tests.unit.recorded import CHECK, measured, metric, proof, saved, write
from tests.unit.report import parsing
from tests.unit.shared import needs

# By their titles.
pytestmark = needs("tensorflow")

FIVE = ("torch", "torch-compile", "jax", "tensorflow", "tensorflow-xla")


def five(*speeds, **fields):
    """The five lanes at these throughputs, of which two are checked alone."""
    found = []
    for lane, speed in zip(FIVE, speeds, strict=True):
        parity = {"weights": "abc", "proof": proof(lane), "check": CHECK}
        found.append(measured(lane, throughput=speed, parity=parity, **fields))
    return found


def tables(out):
    return parsing.csv_files(out / "tables")


@pytest.mark.parametrize(
    ("lanes", "expected"),
    [(("jax", "torch"), "torch"), (("jax", "tensorflow"), "jax"), (("torch",), None), ((), None), (("noop",), None)],
)
def test_the_baseline_is_eager_pytorch_where_it_was_measured_and_else_the_first_lane(lanes, expected):
    assert baseline(cases(measured(lane) for lane in lanes)) == expected


@pytest.mark.parametrize(("asked", "ratio"), [("jax", {"torch": "0.5", "tensorflow": "0.75"}), (None, {"jax": "2.0"})])
def test_every_table_is_relative_to_the_lane_that_was_asked_for(tmp_path, asked, ratio):
    record = saved(*five(100.0, 120.0, 200.0, 150.0, 180.0, metrics={"compile_time": metric(1.0)}))
    given = ["--baseline", asked] if asked else []
    path = str(write(tmp_path / "x.json", record))
    assert main(["report", path, "--out", str(tmp_path / "out"), "--format", "csv,markdown", *given]) == 0
    found = tables(tmp_path / "out")
    lane = asked or "torch"
    speed_ups = {row["lane"]: row["speed-up"] for row in found["inference"].dicts()}
    against = {row["lane"]: row["ratio"] for row in found["ratios"].dicts()}
    assert speed_ups.pop(lane) == "1.0"
    assert against == speed_ups
    assert ratio.items() <= against.items()
    text = parsing.unescaped((tmp_path / "out" / "tables.md").read_text())
    assert ("JAX (jit)" if asked else "PyTorch (eager)") in text.partition("### Every lane against ")[2][:20]


@pytest.mark.parametrize("lane", ["mxnet", "noop"])
def test_a_baseline_that_nobody_measured_is_one_sentence(tmp_path, capsys, lane):
    path = write(tmp_path / "x.json", saved(measured("torch"), measured("jax"), measured("noop", "noop")))
    assert main(["report", str(path), "--out", str(tmp_path / "out"), "--baseline", lane]) == 4
    assert capsys.readouterr().err == (
        f"fwbench: --baseline {lane}: the records have no numbers of that lane, but of torch, jax\n"
    )
    assert not (tmp_path / "out").exists()


def test_with_more_than_two_lanes_each_has_its_part_of_a_sentence():
    sizes = five(100.0, 300.0, 400.0, 110.0, 40.0), five(100.0, 250.0, 400.0, 90.0, 101.0, batch_size=8)
    found = ratios(cases([m for size in sizes for m in size]), "torch")
    assert sentences(found, "torch") == [
        "Throughput against PyTorch (eager), inference: PyTorch (torch.compile) higher in 2 of 2; "
        "JAX (jit) higher in 2 of 2; TensorFlow (tf.function) undecided in 2 of 2; "
        "TensorFlow (XLA) lower in 1 of 2, undecided in 1 of 2."
    ]
    assert sentences(ratios(cases([measured("torch"), measured("jax")]), "torch"), "torch") == []


def test_a_lane_that_may_not_be_compared_has_no_ratio_but_is_told():
    unchecked = measured("mxnet", parity={"weights": "abc"})
    found = ratios(cases([measured("torch"), measured("jax", throughput=201.0), unchecked]), "torch")
    assert [(ratio.case.lane, ratio.confidence) for ratio in found] == [("jax", "likely"), ("mxnet", "unchecked")]
    assert "mxnet not comparable in 1 of 1" in sentences(found, "torch")[0]


def test_of_five_lanes_those_within_noise_share_first_place():
    (answer,) = answers(cases(five(100.0, 208.0, 210.0, 40.0, 205.0)))
    assert answer.shared == ("jax", "torch-compile", "tensorflow-xla")
    together = "JAX, PyTorch (torch.compile) and TensorFlow (XLA)"
    assert headline([answer])[0].startswith(f"Inference: {together} are likely ahead of all others; ")

"""Several networks of one framework as lanes: their names, what each lane runs, and which are measured."""

import dataclasses

import pytest

import fwbench
from fwbench.compare.cases import short, title
from fwbench.models import CATALOG, Model
from fwbench.models.project import (
    complete,
    is_further,
    proofs,
    provable,
    proved_as,
    unknown_network,
)
from fwbench.models.store import Key, Proved, write
from fwbench.record.lanes import LANES, OWN, network
from fwbench.record.workload import Workload
from fwbench.suite.costs import cost, once
from fwbench.suite.profiles import PROFILES
from fwbench.suite.selection import Selection
from fwbench.worker.process.run import _proof
from tests.unit.shared import extension, needs

TWO = Model(
    "block",
    torch={"eager": "mine.net:Block", "fused": "mine.fused:Block"},
    jax="mine.jax_net:Block",
    inputs=fwbench.normal(8),
)
PLAIN = Model("plain", torch="mine.net:Block", jax="mine.jax_net:Block", inputs=fwbench.normal(8))


def test_the_first_network_stands_for_the_framework_and_json_keeps_all():
    assert (TWO.networks, TWO.reference) == ({"torch": "mine.net:Block", "jax": "mine.jax_net:Block"}, "torch")
    assert TWO.paths == ["mine.net:Block", "mine.jax_net:Block", "mine.fused:Block"]
    assert Model.from_json(TWO.to_json()) == TWO
    # Records and proofs of other models stay as they are.
    assert "variants" not in PLAIN.to_json()
    assert all("variants" not in model.to_json() for model in CATALOG.values())
    assert Workload("torch:fused", "block").id == "torch:fused-block-inference-b1"


@pytest.mark.parametrize(
    ("networks", "sentence"),
    [
        ({}, "torch names no network"),
        ({"a:b": "mine.net:Block"}, "'a:b' names a network in torch; use letters, digits"),
        ({"a,b": "mine.net:Block"}, "'a,b' names a network in torch; use letters, digits"),
        ({"eager": "mine.net.Block"}, "'mine.net.Block' is no import path"),
    ],
)
def test_what_names_no_network_is_refused(networks, sentence):
    with pytest.raises(ValueError, match=f"Model\\('block'\\): {sentence}"):
        Model("block", torch=networks, inputs=fwbench.normal(8))


NONE = "there are no whole numbers from"
# Cut off, -0.5 and 0.5 are both 0: a proof would sweep over nothing.
PARTS = "integers are drawn between whole numbers, and not from"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        *(({"low": low, "high": high}, NONE) for low, high in ((0, 0), (5, 5), (3, 1), (0, float("nan")))),
        *(({"low": low, "high": high}, PARTS) for low, high in ((-0.5, 0.5), (0, 4.5), (0, float("inf")))),
        ({"dtype": "int32"}, "the distribution 'normal' has no int32: choose integers or constant"),
        ({"dtype": "bool", "draw": "uniform"}, "the distribution 'uniform' has no bool"),
        ({"draw": "gaussian"}, "unknown distribution 'gaussian' of an input: choose from normal, uniform, integers, "),
    ],
)
def test_what_no_input_is_drawn_from_is_refused(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        fwbench.integers(3, **given) if "low" in given else fwbench.Input((3,), **given)


def test_a_lane_runs_the_network_that_its_name_has():
    paths = {lane: complete(TWO, lane).networks["torch"] for lane in ("torch:eager", "torch:fused", "torch", "jax", "")}
    assert paths == {**dict.fromkeys(paths, "mine.net:Block"), "torch:fused": "mine.fused:Block"}
    assert complete(TWO, "torch-compile:fused").networks["torch"] == "mine.fused:Block"
    # What a worker gets is a model like any other, so that its proof is looked for as such.
    assert complete(TWO, "torch:eager").to_json() == complete(TWO).to_json()
    assert "variants" not in complete(TWO, "torch:fused").to_json()
    assert [lane for lane in ("torch", "torch:eager", "torch:fused", "jax") if is_further(TWO, lane)] == ["torch:fused"]
    # This model has one network in PyTorch, whatever the lane is called.
    assert not is_further(PLAIN, "torch:fused")
    assert proved_as(PLAIN, "torch:fused") == complete(PLAIN)
    assert provable(complete(TWO)) == ["jax"]


def test_a_derived_lane_runs_the_network_of_the_framework_that_it_is_derived_from(monkeypatch):
    derived = dataclasses.replace(OWN["torch"], name="far", framework="far", derived="torch", baseline=False)
    monkeypatch.setitem(LANES._all, "far", derived)
    assert complete(TWO, "far:fused").networks["far"] == "mine.fused:Block"
    assert complete(TWO, "far").networks["far"] == "mine.net:Block"


def test_such_a_lane_is_its_frameworks_in_all_but_its_name():
    lane, own = LANES["torch-compile:fused"], OWN["torch-compile"]
    assert dataclasses.replace(lane, name=own.name, title=own.title) == own
    assert (title("torch:fused"), LANES["torch:fused"].baseline) == ("PyTorch (eager): fused", False)
    assert short("torch:fused", ["torch:eager"]) == "PyTorch (eager): fused"
    assert network("torch:fused") == "fused"
    assert "torch:fused" not in list(LANES)
    assert all(name not in LANES for name in ("torch:", "toch:fused", "torch:a:b", "torch:a b"))
    assert cost(Workload("torch:fused", "mlp"), 2) == cost(Workload("torch", "mlp"), 2)
    on_a_gpu = [Workload(name, "mlp", device="gpu") for name in ("torch:fused", "torch")]
    assert once(on_a_gpu[0]) == once(on_a_gpu[1]) > 0


def chosen(model, lanes=(), asked=()):
    selection = Selection(PROFILES["quick"], (), {"lanes": asked} if asked else {}, {}, None, {}, "cpu", 1, 0.0)
    return [workload.lane for workload in selection.of_test(model, "inference", (1,), lanes)]


@pytest.mark.parametrize(
    ("lanes", "asked", "expected"),
    [
        ((), (), ["torch:eager", "torch:fused", "jax"]),
        ((), ("torch-compile",), ["torch-compile:eager", "torch-compile:fused"]),
        ((), ("torch:fused", "jax"), ["torch:fused", "jax"]),
        ((), ("torch", "torch:fused"), ["torch:eager", "torch:fused"]),
        (("torch",), (), ["torch:eager", "torch:fused"]),
        (("torch:fused", "jax"), (), ["torch:fused", "jax"]),
        (("torch:fused",), ("torch",), ["torch:fused"]),
        (("torch",), ("torch:fused",), ["torch:fused"]),
    ],
)
def test_a_lane_measures_each_network_and_a_name_one(lanes, asked, expected):
    assert chosen(TWO, lanes, asked) == expected


def test_a_model_with_one_network_has_no_lane_of_another_name():
    assert chosen(PLAIN, asked=("torch", "torch:fused")) == ["torch"]
    assert chosen(CATALOG["mlp"], asked=("torch:fused",)) == []


def test_a_name_that_no_model_has_is_a_sentence():
    assert unknown_network([PLAIN, TWO], "torch:fused") == unknown_network([PLAIN], "torch") == ""
    said = unknown_network([PLAIN, TWO], "torch:fusd")
    assert "no model has a network 'fusd' in torch" in said
    assert "'fused'" in said
    assert "name several as in torch={" in unknown_network([PLAIN], "torch:fused")


def test_each_further_network_is_proved_against_another_frameworks_under_a_name_of_its_own():
    pairs = [(model.name, model.networks, candidate) for model, candidate in proofs(TWO)]
    eager, fused = ({"torch": f"mine.{module}:Block", "jax": "mine.jax_net:Block"} for module in ("net", "fused"))
    assert pairs == [("block", eager, "jax"), ("block+torch.fused", fused, "jax")]
    assert [model for model, _ in proofs(TWO)] == [proved_as(TWO, "torch:eager"), proved_as(TWO, "torch:fused")]
    assert [(model.name, candidate) for model, candidate in proofs(PLAIN)] == [("plain", "jax")]
    alone = Model("alone", jax={"nnx": "mine:A", "equinox": "mine:B"}, inputs=fwbench.normal(8))
    assert proofs(alone) == []
    # Of a candidate's further networks nothing else is proved again.
    three = {"torch": "mine:A", "tensorflow": "mine:B", "jax": {"nnx": "mine:C", "equinox": "mine:D"}}
    model = Model("three", inputs=fwbench.normal(8), **three)
    assert [(model.name, candidate) for model, candidate in proofs(model)] == [
        ("three", "tensorflow"),
        ("three", "jax"),
        ("three+jax.equinox", "jax"),
    ]


def stamped(lane, model, folder, **fields):
    """What the record of a lane says of its proof."""
    workload = Workload(lane, model.name, **fields).to_json()
    job = {"proofs": str(folder), "proved_as": proved_as(model, lane).name, "workload": workload}
    return _proof(complete(model, lane), LANES[lane], job)


def test_a_record_has_the_proof_of_the_network_that_its_lane_runs(tmp_path):
    def prove(state, at, candidate="jax"):
        model = proved_as(TWO, at)
        sides = (model.name, candidate, model.reference)
        write(Proved(*sides, state, "they differ", {}, {}, Key.of(model, candidate)), tmp_path)

    assert stamped("torch:eager", TWO, tmp_path) == {"framework": "torch", "state": "reference"}
    prove("proved", "torch:eager")
    assert stamped("jax", TWO, tmp_path)["state"] == "proved"
    # A proof of the first network says nothing of the second one.
    assert stamped("torch:fused", TWO, tmp_path)["state"] == "missing"
    for state in ("failed", "proved"):
        prove(state, "torch:fused")
        assert stamped("torch:fused", TWO, tmp_path)["state"] == state
        assert stamped("torch:fused", TWO, tmp_path)["framework"] == "torch"
        assert stamped("jax", TWO, tmp_path)["state"] == "proved"
    # No proof runs what another compiler makes of a further network.
    prove("proved", "torch:fused", "torch-compile")
    assert stamped("torch-compile:fused", TWO, tmp_path)["state"] == "derived"
    assert stamped("torch-compile-max:eager", TWO, tmp_path)["state"] == "derived"


def test_a_compiled_program_has_a_proof_of_its_own_for_what_that_proof_runs(tmp_path):
    def write_proof(candidate):
        key = Key.of(complete(PLAIN), candidate)
        write(Proved("plain", candidate, "torch", "proved", "", {}, {}, key), tmp_path)

    write_proof("jax")
    found = stamped("torch-compile", PLAIN, tmp_path)
    assert (found["framework"], found["program"], found["state"]) == ("torch", "torch-compile", "missing")
    write_proof("torch-compile")
    for mode in ("inference", "prefill", "decode"):
        assert stamped("torch-compile", PLAIN, tmp_path, mode=mode)["state"] == "proved"
    assert "program" not in stamped("torch", PLAIN, tmp_path)
    assert stamped("jax", PLAIN, tmp_path)["state"] == "proved"
    for fields in ({"mode": "train_step"}, {"mode": "fit"}, {"device": "gpu"}, {"axes": (("length", (2, 4)),)}):
        assert stamped("torch-compile", PLAIN, tmp_path, **fields)["state"] == "derived"
    assert stamped("torch-compile-max", PLAIN, tmp_path)["state"] == "derived"


@needs("proofs")
def test_the_candidates_of_lanes_are_frameworks_and_programs_of_their_own():
    programs = extension("proofs.command").programs(complete(PLAIN))
    asked = {lane: candidate for lane, candidate in programs.items() if LANES[lane].package == "fwbench"}
    assert asked == {"torch-compile": "torch-compile", "jax": "jax"}


def test_networks_of_one_framework_alone_are_checked_in_each_run(tmp_path):
    alone = Model("alone", jax={"nnx": "mine:A", "equinox": "mine:B"}, inputs=fwbench.normal(8))
    assert stamped("jax:nnx", alone, tmp_path) == {"framework": "jax", "state": "alone"}
    assert stamped("jax:equinox", alone, tmp_path)["state"] == "derived"

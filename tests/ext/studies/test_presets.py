"""The published studies as presets."""

import dataclasses

import pytest

from fwbench.ext.studies.presets import STUDIES
from fwbench.models import CATALOG
from fwbench.record import lanes
from fwbench.record.workload import MODES
from tests.unit.shared import needs
from tests.unit.test_suite import chosen, ids

__all__ = ["chosen"]


def test_a_study_has_its_modes_alone_corrected_first_and_the_published_comparison_under_its_label(chosen):
    selection = chosen("--fwbench-study=mnist-mlp")
    assert selection.workloads("inference", CATALOG) == selection.workloads("train_step", CATALOG) == []
    workloads = selection.workloads("fit", CATALOG)
    # Two frameworks with Adam and JAX with SGD, three batch sizes, three seeds.
    assert len(workloads) == 3 * 3 * 3
    labels = [workload.variant for workload in workloads]
    assert labels == sorted(labels)
    assert {(w.lane, w.optimizer) for w in workloads if not w.variant} == {("torch", "adam"), ("jax", "adam")}
    assert {(w.lane, w.optimizer) for w in workloads if w.variant} == {("jax", "sgd")}
    assert all(w.id.endswith("as-published") for w in workloads if w.variant)


def test_vit_in_jax_is_a_normal_row_of_the_training_study(chosen):
    workloads = chosen("--fwbench-study=paper-training").workloads("fit", CATALOG)
    rows = {(w.lane, w.batch_size) for w in workloads if w.model == "vit_b_16"}
    assert rows == {(f, b) for f in ("torch", "torch-compile", "jax") for b in (32, 64, 128)}
    assert {(w.data, w.epochs, w.optimizer, w.learning_rate) for w in workloads} == {("imagenet-100", 2, "adam", None)}


@needs("tensorflow")
def test_the_study_of_three_frameworks_has_their_compiled_lanes(chosen):
    (tensorflow, torch, jax) = chosen("--fwbench-study=simple-cnn").workloads("fit", CATALOG)
    assert [w.lane for w in (tensorflow, torch, jax)] == ["tensorflow-xla", "torch-compile", "jax"]
    # Nothing but the lane sets them apart.
    assert {dataclasses.replace(each, lane="jax") for each in (tensorflow, torch)} == {jax}
    assert (jax.data, jax.epochs) == ("synthetic", 5)


def test_a_study_is_measured_without_the_lanes_that_are_not_here(chosen, monkeypatch):
    monkeypatch.setattr("fwbench.suite.selection.LANES", lanes.OWN)
    workloads = chosen("--fwbench-study=simple-cnn").workloads("fit", CATALOG)
    assert [workload.lane for workload in workloads] == ["torch-compile", "jax"]


@needs("tensorflow")
@pytest.mark.parametrize("study", [name for name in STUDIES if name != "simple-cnn"])
def test_the_studies_of_two_frameworks_take_tensorflow_on_request(chosen, study):
    def lanes(*options):
        selection = chosen(f"--fwbench-study={study}", *options)
        return {workload.lane for mode in MODES for workload in selection.workloads(mode, CATALOG)}

    asked = {"torch", "tensorflow", "tensorflow-xla"}
    assert not lanes() & {"tensorflow", "tensorflow-xla"}
    assert lanes(f"--fwbench-lanes={','.join(asked)}") == asked
    # Its earlier name.
    assert lanes(f"--fwbench-frameworks={','.join(asked)}") == asked


def test_options_change_a_study(chosen):
    fields = {"seed": "4,5", "data": "mnist", "data_path": "/a,b", "epochs": "2", "optimizer": "sgd"}
    fields |= {"learning_rate": "0.5", "accumulate": "4", "remat": "true"}
    options = ("--fwbench-study=mnist-mlp", "--fwbench-lanes=torch", "--fwbench-batch-sizes=32")
    selection = chosen(*options, *(f"--fwbench-set={name}={value}" for name, value in fields.items()))
    assert ids(selection) == [f"torch-mlp-fit-b32-mnist-e2-sgd-lr0.5-a4-remat-s{seed}" for seed in (4, 5)]
    assert {w.data_path for w in selection.workloads("fit", CATALOG)} == {"/a,b"}


def test_a_variant_keeps_what_it_is_about(chosen):
    selection = chosen("--fwbench-study=mnist-mlp", "--fwbench-set=optimizer=adam", "--fwbench-set=seed=0")
    assert {w.optimizer for w in selection.workloads("fit", CATALOG) if w.variant} == {"sgd"}


def test_naming_a_model_in_a_study_asks_for_epochs_of_it(chosen):
    studied = chosen("--fwbench-study=paper-training", "--fwbench-models=cnn", "--fwbench-set=data=synthetic")
    assert {w.model for w in studied.workloads("fit", CATALOG)} == {"cnn"}

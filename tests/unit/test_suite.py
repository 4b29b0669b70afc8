"""The presets, and what options make of them; in a pytest of its own, as options are pytest's."""

import dataclasses
import re
from pathlib import Path

import pytest

from fwbench.machine import machine
from fwbench.models import CATALOG, Model
from fwbench.models.inputs import normal
from fwbench.plugin import selecting
from fwbench.plugin.selecting import select
from fwbench.record import lanes
from fwbench.record.workload import MODES, STATEFUL
from fwbench.suite.profiles import PROFILES
from fwbench.suite.selection import SETTINGS
from fwbench.suite.studies import studies
from tests.proving import MODELS
from tests.unit.shared import needs
from tests.unit.suites import parsed


@pytest.fixture
def chosen(pytester):
    """The selection that command-line options make, by default on a CPU."""

    def choose(*options, device="cpu"):
        config = parsed(pytester, *options)
        return select(config, dataclasses.replace(machine(), device=device))

    return choose


def ids(selection):
    return [workload.id for mode in MODES for workload in selection.workloads(mode, CATALOG)]


@pytest.mark.parametrize(
    "option", [f"--fwbench-profile={name}" for name in PROFILES] + [f"--fwbench-study={name}" for name in studies()]
)
def test_no_two_workloads_share_an_id(chosen, option):
    found = ids(chosen(option))
    assert found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_gpu_has_a_second_at_least_to_raise_its_clocks(chosen, profile):
    def protocol(device, *options):
        return chosen(f"--fwbench-profile={profile}", *options, device=device).protocol

    assert (protocol("gpu").least_warmup_time, protocol("cpu").least_warmup_time) == (1.0, 0.0)
    assert protocol("gpu").warmup_iterations == protocol("cpu").warmup_iterations
    # Where somebody has only so much time, or looks at programs alone.
    assert protocol("gpu", "--benchmark-max-time=0.25").least_warmup_time == 0.25
    assert protocol("gpu", "--fwbench-programs-only").least_warmup_time == 0.0


def test_the_quick_suite_has_inference_of_every_model_and_training_steps_of_two(chosen):
    selection = chosen("--fwbench-profile=quick")
    models = {"resnet50", "vit_b_16", "mobilenet_v3_small", "efficientnet_b0", "mlp", "cnn"}
    for mode, expected in (("inference", models), ("train_step", {"resnet50", "mlp"})):
        assert {(w.lane, w.model) for w in selection.workloads(mode, CATALOG)} == {
            (f, m) for f in ("torch", "jax") for m in expected
        }
    named = chosen("--fwbench-profile=quick", "--fwbench-models=vit_b_16").workloads("train_step", CATALOG)
    assert {(w.model, w.batch_size) for w in named} == {("vit_b_16", 2)}
    assert {w.id for w in selection.workloads("fit", CATALOG)} == {
        f"{f}-mlp-fit-b64-digits-e5-lr0.001" for f in ("torch", "jax")
    }


@pytest.fixture
def on_a_gpu(chosen):
    """Lane, model, batch size and precision of what the suite infers on a GPU with these options."""

    def choose(*options):
        workloads = chosen(*options, device="gpu").workloads("inference", CATALOG)
        found = [(w.lane, w.model, w.batch_size, w.precision) for w in workloads]
        assert len(set(found)) == len(found)
        return set(found)

    return choose


def test_on_a_gpu_quick_infers_two_large_models_in_tf32_and_bf16_too(on_a_gpu):
    lanes = ("torch", "torch-compile", "jax")
    assert {row for row in on_a_gpu() if row[3] != "fp32"} == {
        (lane, model, 32, precision)
        for lane in lanes
        for model in ("resnet50", "vit_b_16")
        for precision in ("tf32", "bf16")
    }
    assert {row[1] for row in on_a_gpu() if row[3] == "fp32"} == set(MODELS)
    assert {row[3] for row in on_a_gpu("--fwbench-profile=paper")} == {"fp32"}
    # A precision that is asked for is that of all models, each once; a small model that is named has no other.
    assert on_a_gpu("--fwbench-precision=bf16") == {
        (lane, model, 32, "bf16") for lane in lanes for model in set(MODELS)
    }
    assert {row[3] for row in on_a_gpu("--fwbench-models=mlp")} == {"fp32"}
    assert {row[3] for row in on_a_gpu("--fwbench-models=resnet50")} == {"fp32", "tf32", "bf16"}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_lane_of_another_way_to_compile_is_measured_only_when_asked_for(on_a_gpu, profile):
    lane = "torch-compile-max"
    assert lane not in {row[0] for row in on_a_gpu(f"--fwbench-profile={profile}")}
    assert {row[0] for row in on_a_gpu(f"--fwbench-profile={profile}", f"--fwbench-lanes={lane}")} == {lane}


@needs("tensorflow")
def test_a_model_of_ones_own_is_measured_in_every_framework_that_it_names(chosen):
    """The suite's own in TensorFlow only on request, as few have it."""

    def lanes(model, *options):
        selection = chosen("--fwbench-profile=quick", *options)
        return [workload.lane for workload in selection.of_test(model, "inference", (1,), ())]

    paths = {"tensorflow": "mine:InKeras", "torch": "mine:InTorch"}
    assert lanes(Model("mine", inputs=normal(3), **paths)) == ["torch", "tensorflow"]
    assert lanes(Model("mine", inputs=normal(3), tensorflow="mine:InKeras")) == ["tensorflow"]
    assert lanes(Model("mine", inputs=normal(3), **paths), "--fwbench-lanes=tensorflow-xla") == ["tensorflow-xla"]
    assert lanes(CATALOG["mlp"]) == ["torch", "jax"]
    both = ["tensorflow", "tensorflow-xla"]
    assert lanes(CATALOG["mlp"], f"--fwbench-lanes={','.join(both)}") == both
    # Under a name of the suite's, too.
    assert lanes(Model("mlp", inputs=normal(3), **paths)) == ["torch", "tensorflow"]


def test_every_combination_of_several_values_is_measured_in_the_modes_that_have_the_field(chosen):
    asked = ("--fwbench-set=remat=false,true", "--fwbench-set=optimizer=adam,sgd", "--fwbench-set=seed=0,1")
    selection = chosen("--fwbench-models=mlp", "--fwbench-lanes=torch", "--fwbench-batch-sizes=2", *asked)
    trained = {"", "-remat", "-sgd", "-sgd-remat"}
    assert {w.id for w in selection.workloads("train_step", CATALOG)} == {
        f"torch-mlp-train_step-b2{setting}{seed}" for setting in trained for seed in ("", "-s1")
    }
    inference = [w.id for w in selection.workloads("inference", CATALOG)]
    assert inference == ["torch-mlp-inference-b2", "torch-mlp-inference-b2-s1"]
    # A later text wins over an earlier one, such as that of pytest's settings.
    again = chosen("--fwbench-profile=quick", "--fwbench-set=seed=0,1", "--fwbench-set=seed=7")
    assert {w.seed for w in again.workloads("inference", CATALOG)} == {7}


def test_the_docs_and_the_help_name_every_option_and_field(pytester):
    text = Path(__file__).parents[2].joinpath("docs", "options.md").read_text()
    options = [name for name in vars(parsed(pytester).option) if name.startswith("fwbench")]
    missing = [name for name in options if f"`--{name.replace('_', '-')}" not in text.partition("## ")[0]]
    defaults = {name: "" if field.default is None else str(field.default).lower() for name, field in SETTINGS.items()}
    rows = [f"| `{f.name}` | {f.values} | {defaults[f.name]} | {f.help} |" for f in SETTINGS.values()]
    missing += [row for row in rows if row not in text]
    assert not missing, "docs/options.md needs:\n" + "\n".join(missing)
    assert ", ".join(SETTINGS) in re.sub(
        r"\s+", " ", str(pytester.runpytest_inprocess("-p", "fwbench.plugin", "--help").stdout)
    )


def test_naming_a_large_model_asks_for_no_epochs_of_it(chosen):
    assert chosen("--fwbench-profile=quick", "--fwbench-models=resnet50").workloads("fit", CATALOG) == []
    assert chosen("--fwbench-profile=quick", "--fwbench-models=resnet50,mlp").workloads("fit", CATALOG) != []


@pytest.mark.parametrize(
    ("scaling", "batches"), [((), {(1, 4), (2, 8)}), (("--fwbench-set=scaling=strong",), {(1, 4), (2, 4)})]
)
def test_batches_follow_the_number_of_devices_or_stay(chosen, monkeypatch, scaling, batches):
    monkeypatch.setattr(selecting, "allocated", lambda environment: True)
    options = ("--fwbench-devices=1,2", "--fwbench-batch-sizes=4", "--fwbench-models=mlp", *scaling)
    found = chosen(*options).workloads("train_step", CATALOG)
    assert {(w.devices, w.batch_size) for w in found} == batches
    # Of one device the names are what they were.
    assert {w.id for w in found if w.devices == 1} == {
        w.id for w in chosen(*options[1:3]).workloads("train_step", CATALOG)
    }


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--fwbench-set=data=cifar", "--fwbench-set: unknown data 'cifar': choose from digits, "),
        ("--fwbench-set=optimizer=sdg", "--fwbench-set: unknown optimizer 'sdg': the nearest is 'sgd'"),
        ("--fwbench-set=optimiser=sgd", "--fwbench-set: there is no field 'optimiser': the nearest is 'optimizer'"),
        ("--fwbench-set=remat", "--fwbench-set: 'remat' is not FIELD=VALUE, as in seed=1"),
        ("--fwbench-set=remat=1", "--fwbench-set: remat=1 is not true or false"),
        ("--fwbench-set=seed=0,-1", "--fwbench-set: seed -1 is not a whole number of at least 0"),
        ("--fwbench-set=seed=", "--fwbench-set: seed= is not a whole number of at least 0"),
        ("--fwbench-set=accumulate=3", "a batch of 2 cannot be cut into 3 equal parts"),
        ("--fwbench-set=epochs=0", "epochs 0 is not a whole number of at least 1"),
        ("--fwbench-set=learning_rate=-1", "learning rate -1.0 is not a number above 0"),
        ("--fwbench-set=batch_size=3", "--fwbench-set does not set batch_size, which --fwbench-batch-sizes decides"),
        ("--fwbench-devices=0", "--fwbench-devices: devices 0 is not a whole number of at least 1"),
        ("--fwbench-devices=1000", "--fwbench-devices 1000: this machine has .* ask for no more devices"),
        ("--fwbench-devices=1,2 --fwbench-set=scaling=strong --fwbench-batch-sizes=3", "a batch of 3 .* 2 equal parts"),
    ],
)
def test_a_wrong_value_is_one_sentence(chosen, options, sentence):
    with pytest.raises((pytest.UsageError, ValueError), match=sentence):
        ids(chosen(*options.split()))


def test_a_lane_that_says_nothing_of_several_devices_runs_on_one(chosen, monkeypatch):
    monkeypatch.setitem(lanes.OWN, "jax", dataclasses.replace(lanes.OWN["jax"], processes={}))
    assert ids(chosen("--fwbench-lanes=jax"))
    with pytest.raises(ValueError, match="the lane jax runs on one device alone; choose other lanes"):
        ids(chosen("--fwbench-lanes=jax", "--fwbench-devices=1,2"))


def test_on_a_cpu_the_largest_model_has_smaller_batches_unless_others_are_asked_for(chosen):
    def sizes(*options):
        workloads = chosen("--fwbench-profile=quick", *options).workloads("inference", CATALOG)
        return {w.batch_size for w in workloads if w.model == "vit_b_16"}, {w.batch_size for w in workloads}

    assert sizes() == ({1, 2}, {1, 2, 8})
    assert sizes("--fwbench-batch-sizes=4") == ({4}, {4})


def test_of_models_with_a_state_those_that_are_named_are_measured_in_modes_of_their_own(chosen):
    named = chosen("--fwbench-models=decoder,mlp")
    assert {mode: {w.model for w in named.workloads(mode, CATALOG)} for mode in MODES} == {
        mode: {"decoder" if mode in STATEFUL else "mlp"} for mode in MODES
    }
    assert not [w for mode in STATEFUL for w in chosen().workloads(mode, CATALOG)]

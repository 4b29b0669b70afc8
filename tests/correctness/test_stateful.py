"""Models with a state: what a call of a program takes and leaves, and the proof of steps against the whole sequence."""

import functools
import math

import jax.numpy as jnp
import numpy as np
import pytest

import fwbench
from fwbench import frameworks
from fwbench.ext.proofs import stepping
from fwbench.ext.proofs.case import side
from fwbench.ext.proofs.errors import NotTheSame
from fwbench.frameworks.jax import decoder as in_jax
from fwbench.meters.generation import generation, margins
from fwbench.models import CATALOG, Model, ModelError, stateful
from fwbench.models.weights import draw
from fwbench.record.lanes import OWN
from fwbench.record.measurement import Metric, unavailable
from fwbench.record.workload import Workload
from tests import programs
from tests.correctness.proofs import first_of_each

_HERE = "tests.correctness.stateful_networks"
_JAX, _TORCH = "fwbench.frameworks.jax.decoder", "fwbench.frameworks.torch.decoder"

DECODER = Model(
    "tiny-decoder",
    torch=f"{_TORCH}:Decoder",
    jax=f"{_JAX}:Decoder",
    inputs=fwbench.tokens("length", vocabulary=32),
    axes={"length": (6, 9), "width": 16, "layers": 2, "heads": 4, "groups": 2, "hidden": 24, "vocabulary": 32},
    state={"torch": f"{_TORCH}:cache", "jax": f"{_JAX}:cache"},
)
RNN = Model(
    "rnn",
    torch=f"{_HERE}:TorchRnn",
    jax=f"{_HERE}:JaxRnn",
    inputs=fwbench.normal("length", 8),
    axes={"length": (5, 7)},
    weights={r"^(\w+_l0)$": r"rnn.\1"},
    state={"torch": f"{_HERE}:torch_hidden", "jax": f"{_HERE}:jax_hidden"},
)
GROWING = Model(
    "growing",
    torch=f"{_HERE}:TorchGrowing",
    jax=f"{_HERE}:JaxGrowing",
    inputs=fwbench.normal("length", 8),
    axes={"length": (5, 7)},
    state={"torch": f"{_HERE}:torch_nothing", "jax": f"{_HERE}:jax_nothing"},
)
IN_PLACE = Model.from_json({**RNN.to_json(), "networks": {**RNN.networks, "torch": f"{_HERE}:TorchRnnInPlace"}})
MODELS = {model.name: model for model in (DECODER, RNN, GROWING)} | {"in-place": IN_PLACE}

every_lane = pytest.mark.parametrize("lane", ["torch", "jax"])


@functools.cache
def built(model, lane, mode):
    """A compiled program; `inference` computes all steps of decode's batch at once, without a state."""
    axes = (("length", stateful.sizes(model, Workload("", model.name, "decode"))["length"]),)
    program, _ = programs.built(Workload(lane, model.name, mode, 2, axes=axes if mode == "inference" else ()), model)
    with program.session():
        program.compile()
    return program


def outputs(program, calls=3):
    with program.session():
        return programs.outputs(program, calls)


@pytest.fixture(scope="module", autouse=True)
def no_program_left():
    yield
    built.cache_clear()


# What writes in place does so in PyTorch alone.
@pytest.mark.parametrize(
    ("name", "lane"),
    [(name, lane) for name in MODELS for lane in ("torch", "jax") if (name, lane) != ("in-place", "jax")],
)
def test_a_call_computes_the_prompt_or_the_step_after_those_that_the_state_holds(name, lane):
    """Every call does, and so it does with other weights, with which the state is filled again, and in other memory."""
    model = MODELS[name]
    whole, prefill, decode = (built(model, lane, mode) for mode in ("inference", "prefill", "decode"))
    other = draw(model, {name: array.shape for name, array in decode.weights().items()}, seed=1)
    for weights in (None, other):
        for program in (whole, prefill, decode) if weights else ():
            with program.session():
                program.restart(weights)
            program.relocate()
        (expected,) = outputs(whole, 1)
        for output in outputs(decode):
            np.testing.assert_allclose(output.reshape(expected[:, -1:].shape), expected[:, -1:], rtol=1e-4, atol=1e-6)
        for output in outputs(prefill):
            output = output[:, None] if output.ndim < expected.ndim else output
            prompt = expected[:, :-1][:, -output.shape[1] :]
            np.testing.assert_allclose(output, prompt, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "lane", "way"),
    [
        (DECODER, "torch", "updated in place"),
        (DECODER, "jax", "donated"),
        *((model, lane, "returned anew") for model in (RNN, GROWING) for lane in ("torch", "jax")),
    ],
    ids=str,
)
def test_the_record_says_how_the_state_is_updated(model, lane, way):
    assert built(model, lane, "decode").settings["state"] == way


@every_lane
def test_the_size_of_the_state_is_that_of_the_whole_cache(lane):
    keys_and_values = 2 * 2 * 2 * 128 * 2 * 4 * 4  # layers, batch, groups, steps, both, size, bytes
    assert keys_and_values < built(DECODER, lane, "decode").state_memory().value <= keys_and_values + 8


def test_one_sequence_feeds_prompt_and_step():
    sizes = {mode: Workload("torch", "rnn", mode, 2) for mode in ("prefill", "decode")}
    prompt, step = (stateful.called(RNN, workload)[""] for workload in sizes.values())
    assert (prompt.shape, step.shape) == ((2, 5, 8), (2, 1, 8))
    assert np.array_equal(stateful.filling(RNN, sizes["decode"])[""], prompt)
    assert stateful.filling(RNN, sizes["prefill"]) is None


@pytest.mark.parametrize("name", [pytest.param("tiny-decoder", marks=pytest.mark.slow), *list(MODELS)[1:]])
def test_steps_are_proved_to_compute_what_the_whole_sequence_does(name):
    (steps, state), note = stepping.prove(MODELS[name], "jax")
    assert note == ""
    assert (steps.quantity, state.quantity) == ("steps", "state")
    assert max(steps.error, state.error) < 1e-13


ROTATED, WRITE, ATTEND = in_jax.rotary, in_jax.write, in_jax.attend


# What stands in the place of which function of the decoder, and where a proof sees it: in steps alone, of one position.
MISTAKES = {
    "rotated off by one": (
        "rotary",
        lambda at, size, dtype: ROTATED(at + (at.shape[0] == 1), size, dtype),
        "the state differs first in 'layers.0.0'",
    ),
    "written one further": (
        "write",
        lambda cache, key, value, at: WRITE(cache, key, value, at + (at.shape[0] == 1)),
        "the state differs first in 'layers.0.0'",
    ),
    "unused part unmasked": (
        "attend",
        lambda query, keys, values, mask: ATTEND(query, keys, values, mask | (jnp.arange(mask.shape[1]) >= 100)),
        "step 1",
    ),
    "heads swapped": (
        "attend",
        lambda query, keys, values, mask: ATTEND(
            query, keys, values[:, :, ::-1] if query.shape[1] == 1 else values, mask
        ),
        "the state differs first in 'layers.1.0'",
    ),
    "unscaled": (
        "attend",
        lambda query, keys, values, mask: ATTEND(
            query * (query.shape[-1] ** 0.5 if query.shape[1] == 1 else 1), keys, values, mask
        ),
        "the state differs first in 'layers.1.0'",
    ),
}


@pytest.mark.parametrize(
    "mistake", first_of_each([(mistake,) for mistake in MISTAKES], lambda mistake: MISTAKES[mistake][0])
)
def test_a_mistake_in_steps_alone_is_found_and_placed(mistake, monkeypatch):
    function, wrong, place = MISTAKES[mistake]
    monkeypatch.setattr(in_jax, function, wrong)
    with pytest.raises(NotTheSame, match="in jax") as found:
        stepping.prove(DECODER, "jax")
    assert place in str(found.value)


def test_a_mistake_that_steps_and_the_whole_share_is_found_across_frameworks(monkeypatch):
    def swapped(query, keys, values, mask):
        return ATTEND(query, keys[:, :, ::-1], values[:, :, ::-1], mask)

    monkeypatch.setattr(in_jax, "attend", swapped)
    with pytest.raises(NotTheSame, match=r"torch and jax differ in 'layers\.1\.0'"):
        stepping.prove(DECODER, "jax")


def other_layout(batch_size, length, width, layers, heads, groups):
    """The decoder's cache under other names."""
    made = in_jax.cache(batch_size, length, width, layers, heads, groups)
    return {"at": made["position"], "layers": {str(number): pair for number, pair in enumerate(made["layers"])}}


class OtherLayout(in_jax.Decoder):
    """The decoder with a cache that is laid out otherwise."""

    def __call__(self, tokens, state=None):
        if state is None:
            return super().__call__(tokens)
        layers = list(state["layers"].values())
        output, after = super().__call__(tokens, {"position": state["at"], "layers": layers})
        return output, {"at": after["position"], "layers": dict(zip(state["layers"], after["layers"], strict=True))}


@pytest.mark.slow
def test_another_layout_of_the_cache_is_no_difference():
    here = "tests.correctness.test_stateful"
    described = DECODER.to_json()
    described["networks"] = {**DECODER.networks, "jax": f"{here}:OtherLayout"}
    described["state"] = {**DECODER.state, "jax": f"{here}:other_layout"}
    (steps, _), note = stepping.prove(Model.from_json(described), "jax")
    assert steps.error < 1e-13
    assert note.endswith("has no array of this name and shape: 'position' of torch, 'at' of jax.")


@every_lane
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"state": {}}, "names no state in"),
        ({"networks": dict.fromkeys(("torch", "jax"), f"{_HERE}:no_pair")}, "returns the pair (output, state)"),
        ({"state": dict.fromkeys(("torch", "jax"), f"{_HERE}:of_text")}, "holds an object of type str"),
        ({"state": dict.fromkeys(("torch", "jax"), f"{_HERE}:WIDTH")}, "name a function that makes a state"),
    ],
    ids=["no-state", "no-pair", "text", "no-function"],
)
def test_what_is_no_state_is_told(lane, changed, said):
    model = Model.from_json({**RNN.to_json(), **changed})
    workload, framework = Workload(lane, "rnn", "decode"), frameworks.load(OWN[lane].adapter)
    weights = draw(model, framework.weight_shapes(model, {"length": 6}), 0)
    if not model.state:
        assert said in framework.unavailable(workload, model)
        return
    with pytest.raises(ModelError) as raised:
        framework.build(workload, model, weights)
    assert said in str(raised.value)


@pytest.mark.parametrize(("field", "value"), [("devices", 2), ("target", "h100")])
@every_lane
def test_one_device_that_is_here_runs_a_state(lane, field, value):
    workload = Workload(lane, "rnn", "decode", 2, **{field: value})
    assert frameworks.load(OWN[lane].adapter).unavailable(workload, RNN)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"state": {"tensorflow": "a:b"}}, "state names 'tensorflow'"),
        ({"inputs": fwbench.normal(8), "axes": {}}, "takes a sequence"),
        ({"inputs": {"state": fwbench.normal("length")}}, "rename the input"),
    ],
)
def test_a_state_that_makes_no_sense_is_told(given, said):
    described = {"inputs": fwbench.normal("length"), "axes": {"length": 4}, "state": {"torch": "a:b"}, **given}
    with pytest.raises(ValueError, match=said):
        Model("wrong", torch="a:b", **described)


def test_the_catalogues_decoder_has_its_parameters_in_both_frameworks():
    decoder = CATALOG["decoder"]
    found = [side(framework).shapes(decoder, decoder.sizes()) for framework in ("torch", "jax")]
    assert found[0] == found[1]
    assert sum(math.prod(shape) for shape in found[0].values()) == decoder.parameters


def test_times_of_tokens_are_those_of_calls():
    program = built(RNN, "torch", "prefill")
    metrics = {name: Metric(value, name) for name, value in (("latency_p50", 0.5), ("throughput", 8.0))}
    metrics["energy_per_sample"] = unavailable("a meter", "there is none")
    found = {
        mode: generation(Workload("torch", "rnn", mode, axes=(("length", 7),)), RNN, program, metrics)
        for mode in ("prefill", "decode")
    }
    # One layer's hidden state of two sequences, eight numbers of four bytes each.
    assert {name: metric.value for name, metric in found["prefill"].items()} == {
        "time_to_first_token": 0.5,
        "tokens_per_second": 56.0,
        "energy_per_token": None,
        "state_memory": 64.0,
    }
    assert found["prefill"]["energy_per_token"].reason == "there is none"
    assert found["decode"]["time_per_output_token"].value == 0.5
    assert found["decode"]["tokens_per_second"].value == 8.0


def test_energy_of_tokens_is_that_of_samples():
    program = built(RNN, "torch", "prefill")
    metrics = {name: Metric(14.0, name) for name in ("latency_p50", "throughput", "energy_per_sample")}
    workload = Workload("torch", "rnn", "prefill", axes=(("length", 7),))
    assert generation(workload, RNN, program, metrics)["energy_per_token"].value == 2.0


@pytest.mark.parametrize(
    ("model", "mode", "count"), [(DECODER, "prefill", 2), (DECODER, "decode", 2), (RNN, "decode", 0)]
)
def test_logits_over_the_tokens_of_an_input_have_a_margin_a_sequence(model, mode, count):
    program = built(model, "torch", mode)
    (output,) = outputs(program, 1)
    found = margins(model, output)
    first = [np.sort(logits)[-1] - np.sort(logits)[-2] for logits in output[:count]]
    np.testing.assert_allclose(found, np.array(first) / np.linalg.norm(output), rtol=1e-2)


def test_a_model_says_nothing_of_a_state_that_it_lacks():
    """The proofs of such models would hold no longer."""
    assert "state" not in CATALOG["mlp"].to_json()
    assert Model.from_json(RNN.to_json()) == RNN

"""The answers as cards: the words claim no more than the answer does."""

import pytest

from fwbench.compare.cases import cases
from fwbench.report.answers import answers
from fwbench.report.cards import cards
from tests.unit.recorded import measured, metric


def card(*measurements):
    ((mode, (found,)),) = cards(answers(cases(measurements))).items()
    return mode, found


def lanes(batch_size=8, model="mlp", mode="inference", **speeds):
    given = {"batch_size": batch_size, "model": model, "mode": mode}
    return [measured(lane.replace("_", "-"), throughput=speed, **given) for lane, speed in speeds.items()]


UNDECIDED = "between JAX and PyTorch nothing is decided"


def in_turns(batch_size, ratio, scatter=0.002, rounds=6, model="vit_b_16"):
    """PyTorch and JAX, which is so many times as fast in rounds that scatter by so much."""
    found = []
    for lane, factor in (("torch", 1.0), ("jax", ratio)):
        calls = [0.1 / factor * (1 + scatter * (-1) ** n * (lane == "jax")) for n in range(rounds)]
        turns = tuple({"begun": float(n), "call": [call] * 4} for n, call in enumerate(calls))
        found.append(measured(lane, model, batch_size=batch_size, turns=turns))
    return found


@pytest.mark.parametrize(
    ("speeds", "kind", "said"),
    [
        ({"jax": 300.0}, "likely", "JAX is likely 1.50 to 6.00 times as fast as PyTorch, by one process each"),
        ({"jax": 110.0}, "undecided", f"{UNDECIDED} by one process each (JAX is 0.55 to 2.20 times as fast)"),
        (
            {"torch_compile": 205.0, "jax": 210.0},
            "shared",
            "JAX and PyTorch (torch.compile) are likely ahead of all others; between them nothing is decided by one "
            "process each (JAX is 0.51 to 2.05 times as fast)",
        ),
    ],
)
def test_a_card_says_in_a_sentence_who_wins_by_how_much_and_how_sure(speeds, kind, said):
    mode, found = card(*lanes(torch=100.0, **speeds))
    assert (mode, found.workload) == ("inference", "mlp, batch 8")
    assert (found.kind, found.sentence) == (kind, f"Inference of MLP 784-256-128-10 at batch 8: {said}.")
    assert found.rests.startswith("one process each")


def test_a_card_names_its_devices():
    given = [
        measured(lane, batch_size=8, throughput=speed, devices=2) for lane, speed in (("torch", 1.0), ("jax", 3.0))
    ]
    _, found = card(*given)
    assert found.workload == "mlp on 2 devices, batch 8"
    assert found.sentence.startswith("Inference of MLP 784-256-128-10 on 2 devices at batch 8: JAX is likely ")


@pytest.mark.parametrize(
    ("ratio", "scatter", "kind", "said"),
    [
        (1.9, 0.002, "clear", "JAX is 1.87 to 1.93 times as fast as PyTorch"),
        (1.0, 0.002, "shared", "JAX and PyTorch are equal within 5 %"),
        (1.0, 0.05, "shared", "JAX and PyTorch are at most 8 % apart"),
        (1.0, 0.08, "undecided", f"{UNDECIDED} after 6 rounds (JAX is 0.90 to 1.12 times as fast)"),
    ],
)
def test_rounds_of_turns_are_said_with_their_interval(ratio, scatter, kind, said):
    _, found = card(*in_turns(1, ratio, scatter))
    assert (found.kind, found.sentence) == (kind, f"Inference of ViT-B/16 at batch 1: {said}.")


def test_batch_sizes_with_one_answer_share_a_card():
    _, found = card(*in_turns(1, 1.9), *in_turns(8, 1.92))
    assert found.workload == "vit_b_16, batch 1 and 8"
    said = "Inference of ViT-B/16: JAX is faster than PyTorch, by a common factor of 1.90 to 1.92, at both batch sizes."
    assert found.sentence == said
    _, found = card(*in_turns(1, 1.9), *in_turns(8, 1.92), *in_turns(32, 1.92))
    said = " by a factor of 1.90 (vit_b_16 b1) to 1.92 (vit_b_16 b8), at all 3 batch sizes."
    assert found.sentence.endswith(said)


def test_a_batch_size_with_another_answer_has_its_own_card():
    """Which of two lanes that nothing tells apart is named first makes no other answer."""
    given = [*in_turns(1, 1.9), *in_turns(8, 0.5), *in_turns(2, 1.01, 0.08), *in_turns(4, 0.99, 0.08)]
    (found,) = cards(answers(cases(given))).values()
    kinds = {"vit_b_16, batch 1": "clear", "vit_b_16, batch 8": "clear", "vit_b_16, batch 2 and 4": "undecided"}
    assert [(one.workload, one.kind) for one in found] == [*kinds.items()]
    assert " at batch 2 and 4: " in found[2].sentence


def test_a_card_of_six_pairs_is_clear_and_has_its_interval():
    given = [
        measured(lane, seed=seed, throughput=speed + seed)
        for lane, speed in (("torch", 100.0), ("jax", 150.0))
        for seed in range(6)
    ]
    _, found = card(*given)
    assert found.kind == "clear"
    assert found.sentence.endswith(": JAX is 1.48 to 1.50 times as fast as PyTorch.")
    assert found.rests == "6 pairs of processes: 1.48x to 1.50x at 97%; proved to compute the same"


def test_lanes_that_may_not_be_compared_have_no_winner():
    _, found = card(measured("torch"), measured("jax", throughput=300.0, parity={"weights": "abc"}))
    assert found.kind == "apart"
    assert found.sentence.endswith(": JAX and PyTorch cannot be compared: unchecked.")


def test_what_disturbed_an_answer_stands_on_its_card():
    _, found = card(measured("torch", metrics={"other_load": metric(0.2)}), measured("jax", throughput=110.0))
    assert found.disturbed == "other load (20%)"


def test_who_is_the_best_by_another_metric_stands_there_too():
    def lane(name, p50, memory, batch_size=1):
        values = {"latency_p50": metric(p50), "host_peak_memory": metric(memory)}
        return measured(name, metrics=values, batch_size=batch_size)

    first = lane("torch", 0.1, 300.0), lane("jax", 0.25, 100.0)
    second = lane("torch", 0.6, 400.0, 8), lane("jax", 0.2, 100.0, 8)
    _, found = card(*first)
    assert found.others == ("least latency: PyTorch, 2.50x", "least memory: JAX, 3.00x")
    _, found = card(*first, *second)
    assert found.others == (
        "least latency: PyTorch, 2.50x at batch 1; JAX, 3.00x at batch 8",
        "least memory: JAX, 3.00x at batch 1, 4.00x at batch 8",
    )


def test_each_mode_has_its_own_cards():
    given = [measured(lane, mode=mode) for mode in ("inference", "train_step") for lane in ("torch", "jax")]
    assert {mode: len(of) for mode, of in cards(answers(cases(given))).items()} == {"inference": 1, "training steps": 1}

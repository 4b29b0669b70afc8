"""The answers as cards: the words claim no more than the answer does."""

import pytest

from fwbench.report.answers import answers
from fwbench.report.cards import cards
from fwbench.report.cases import cases
from tests.unit.recorded import measured, metric


def card(*measurements):
    ((mode, (found,)),) = cards(answers(cases(measurements))).items()
    return mode, found


@pytest.mark.parametrize(
    ("speeds", "kind", "verdict", "ratio"),
    [
        ({"torch": 100.0, "jax": 200.0}, "likely", "JAX (jit)", "2.00x before PyTorch (eager)"),
        ({"torch": 100.0, "jax": 110.0}, "undecided", "Undecided", "JAX (jit) 1.10x before PyTorch (eager)"),
        (
            {"torch": 100.0, "torch-compile": 195.0, "jax": 200.0},
            "shared",
            "Shared by PyTorch (torch.compile) and JAX (jit)",
            "the two best are 1.03x apart",
        ),
    ],
)
def test_a_card_says_who_wins_by_how_much_and_how_sure(speeds, kind, verdict, ratio):
    mode, found = card(*(measured(lane, throughput=speed, batch_size=8) for lane, speed in speeds.items()))
    assert (mode, found.workload) == ("inference", "mlp, batch 8")
    assert (found.kind, found.verdict, found.ratio) == (kind, verdict, ratio)
    assert found.rests.startswith("one process each")


def test_a_card_of_six_pairs_is_clear_and_has_its_interval():
    given = [
        measured(lane, seed=seed, throughput=speed + seed)
        for lane, speed in (("torch", 100.0), ("jax", 150.0))
        for seed in range(6)
    ]
    _, found = card(*given)
    assert (found.kind, found.verdict) == ("clear", "JAX (jit)")
    assert found.rests == "6 pairs of processes: 1.48x to 1.50x at 97%; proved to compute the same"


def test_lanes_that_may_not_be_compared_have_no_winner():
    _, found = card(measured("torch"), measured("jax", throughput=300.0, parity={"weights": "abc"}))
    assert (found.kind, found.verdict, found.ratio) == (
        "apart",
        "Not comparable",
        "JAX (jit) and PyTorch (eager): unchecked",
    )


def test_what_disturbed_an_answer_stands_on_its_card():
    _, found = card(measured("torch", metrics={"other_load": metric(0.2)}), measured("jax", throughput=110.0))
    assert found.disturbed == "other load (20%)"


def test_who_is_the_best_by_another_metric_stands_there_too():
    def lane(name, p50, memory):
        return measured(name, metrics={"latency_p50": metric(p50), "host_peak_memory": metric(memory)})

    _, found = card(lane("torch", 0.1, 300.0), lane("jax", 0.2, 100.0))
    assert found.others == ("least latency: PyTorch (eager), 2.00x", "least memory: JAX (jit), 3.00x")


def test_each_mode_has_its_own_cards():
    given = [measured(lane, mode=mode) for mode in ("inference", "train_step") for lane in ("torch", "jax")]
    assert {mode: len(of) for mode, of in cards(answers(cases(given))).items()} == {"inference": 1, "training steps": 1}

"""What a lower precision gains and costs, from errors that records state."""

import dataclasses

import pytest

from fwbench.compare.cases import cases, settings
from fwbench.record.measurement import Metric, unavailable
from fwbench.report import summary
from fwbench.report.answers import answers, cell, verdict_on
from fwbench.report.answers import table as answer_table
from fwbench.report.contents import remarks, tables
from fwbench.report.precisions import prices, table, unlike
from fwbench.report.tables import lines
from tests.unit.recorded import measured
from tests.unit.report.parsing import values
from tests.unit.report.test_cases import record


def row(lane, precision, throughput, mode="inference", axes=(), quantised="", **errors):
    metrics = {name: Metric(value, "relative L2, against float64 in torch") for name, value in errors.items()}
    fields = {"axes": axes, "metrics": metrics, "settings": {"quantised": quantised} if quantised else {}}
    return measured(lane, precision=precision, throughput=throughput, mode=mode, **fields)


GIVEN = [
    row("torch", "fp32", 100.0, output_error=2e-7),
    row("torch", "bf16", 500.0, output_error=6e-3),
    row("jax", "bf16", 90.0, output_error=7e-3),
]


def test_a_lower_precision_stands_beside_fp32_of_its_own_lane():
    torch, jax = prices(cases(GIVEN))
    assert (torch.workload.lane, torch.beside.workload.precision) == ("torch", "fp32")
    assert (torch.weighed.ratio, torch.more("output_error")) == (5.0, pytest.approx(3e4))
    assert str(torch) == "5.00 (2.50 to 10.00) times as fast, 30,000 times the error"
    decode = {"mode": "decode", "axes": (("depth", 8),)}
    low, high = (
        row("torch", precision, 1.0, output_error=e, **decode) for precision, e in (("bf16", 6e-3), ("fp32", 2e-7))
    )
    assert str(*prices(cases([low, high]))).endswith("30,000 times the error")
    # Of a lane without a row in fp32 the error stands alone.
    assert (jax.beside, jax.weighed, jax.more("output_error"), str(jax)) == (None, None, None, "")
    made = values(table([torch, jax]))
    assert [each["output error"] for each in made] == [6e-3, 7e-3]
    assert [each["output error in fp32"] for each in made] == [2e-7, None]


QUANTISED = [
    GIVEN[0],
    row("jax", "fp32", 50.0, output_error=4e-7),
    row("int8", "fp32", 500.0, output_error=8e-3, quantised="int8"),
]


def test_quantised_weights_stand_beside_each_lane_in_fp32():
    torch, jax = prices(cases(QUANTISED))
    assert [price.workload.lane for price in (torch, jax)] == ["int8", "int8"]
    assert [price.beside.workload.lane for price in (torch, jax)] == ["torch", "jax"]
    assert [price.weighed.ratio for price in (torch, jax)] == [5.0, 10.0]
    assert str(torch) == "5.00 (2.50 to 10.00) times as fast, 40,000 times the error"
    made = values(table([torch, jax]))
    assert [each["precision"] for each in made] == ["fp32, int8 weights"] * 2
    assert [each["against fp32"].partition(": ")[0] for each in made] == ["torch", "jax"]
    assert [each["output error in fp32"] for each in made] == [2e-7, 4e-7]
    # Alone, and beside nothing but others with quantised weights, it has its error.
    for given in (QUANTISED[2:], [QUANTISED[2], row("int4", "fp32", 1.0, output_error=0.1, quantised="int4")]):
        assert [(price.beside, str(price)) for price in prices(cases(given))] == [(None, "")] * len(given)


def test_an_answer_has_the_price_of_quantised_weights():
    (answer,) = answers(cases(QUANTISED))
    assert (answer.fastest, answer.second, answer.evidence) == ("int8", "torch", "quantised")
    assert answer.price == pytest.approx(4e4)
    price = "with 40,000 times the error"
    for said in (cell(answer), verdict_on([answer])):
        assert price in said
    coarser = row("int8", "fp32", 500.0, output_error=1e-2, quantised="int8")
    (larger,) = answers(cases([*QUANTISED[:2], coarser]))
    assert "with 40,000 to 50,000 times the error" in verdict_on([answer, larger])
    # fp32 that is faster has less of it.
    (answer,) = answers(cases([row("torch", "fp32", 999.0, output_error=2e-7), QUANTISED[2]]))
    assert (answer.fastest, answer.price) == ("torch", pytest.approx(2.5e-5))
    # Between two lanes in fp32 there is none to pay.
    slow = row("int8", "fp32", 1.0, output_error=8e-3, quantised="int8")
    assert [found.price for found in answers(cases([*QUANTISED[:2], slow]))] == [None]
    for given, has in ((QUANTISED, True), (QUANTISED[:2], False)):
        assert ("error" in [column.name for column in answer_table(answers(cases(given))).columns]) is has


def test_quantised_weights_in_a_lower_precision_are_not_unlike_other_lanes():
    given = [
        row("torch", "bf16", 1.0, output_error=6e-3),
        row("int8", "bf16", 1.0, output_error=2e-2, quantised="int8"),
    ]
    assert unlike(cases(given)) == []
    assert len(unlike(cases([given[0], dataclasses.replace(given[1], settings={})]))) == 1


def test_of_training_the_gradients_error_is_compared_and_what_is_missing_has_its_reason():
    step = {"mode": "train_step"}
    low = row("torch", "bf16", 100.0, **step, loss_error=1e-4, gradient_error=4e-3)
    given = [row("torch", "fp32", 100.0, **step, loss_error=1e-7, gradient_error=1e-6), low]
    (price,) = prices(cases(given))
    assert str(price).endswith("4,000 times the error")
    random = {"gradient_error": unavailable("float64", "it is random")}
    without = dataclasses.replace(low, metrics={**low.metrics, **random})
    (price,) = prices(cases([given[0], without]))
    assert "error" not in str(price)
    assert table([price]).missing == ("no gradient error: it is random",)


def test_rows_of_other_weights_are_not_set_against_each_other():
    other = dataclasses.replace(GIVEN[0], parity={**GIVEN[0].parity, "weights": "def"})
    (price, _) = prices(cases([other, *GIVEN[1:]]))
    assert price.weighed is None


@pytest.mark.parametrize(("factor", "found"), [(1.0, False), (1.3, False), (2.0, True), (0.5, True)])
def test_a_lane_whose_error_is_off_by_a_factor_of_two_is_named(factor, found):
    given = [row("torch", "bf16", 1.0, output_error=6e-3), row("jax", "bf16", 1.0, output_error=factor * 6e-3)]
    said = unlike(cases(given))
    assert len(said) == found
    if found:
        larger, smaller = ("jax", "torch") if factor > 1 else ("torch", "jax")
        assert f"{larger} has 2.0 times the output error of {smaller}" in said[0]
        assert said[0] in summary.every_note(given)
        (setting,) = settings([record(*given)])
        assert said[0] in remarks(setting)


def test_losses_gradients_and_rows_in_fp32_are_never_unlike():
    """One number may be near by chance, a unit may pass a kink, and in fp32 the order of sums decides."""
    for name in ("loss_error", "gradient_error"):
        given = [row("torch", "bf16", 1.0, **{name: 1e-3}), row("jax", "bf16", 1.0, **{name: 1e-5})]
        assert unlike(cases(given)) == []
    assert (
        unlike(cases([row("torch", "fp32", 1.0, output_error=4e-7), row("jax", "fp32", 1.0, output_error=1e-7)])) == []
    )


def test_the_end_of_a_run_and_the_report_show_it_and_tell_precisions_apart():
    both = [*GIVEN, row("jax", "fp32", 200.0, output_error=3e-7)]
    names, *rows = summary.priced(both)
    assert "in fp32" not in names.replace("against fp32", "")
    assert [line.split()[-1] for line in rows] == ["6.0e-03", "7.0e-03"]
    assert [line.split()[3] for line in summary.answered(both)] == ["precision", "fp32", "bf16"]
    (setting,) = settings([record(*both)])
    assert lines(next(made for made in tables(setting, "torch") if made.key == "precisions"))
    # A run in fp32 alone has neither.
    assert summary.priced(both[:1]) == []
    assert "precision" not in summary.answered([both[0], both[3]])[0]

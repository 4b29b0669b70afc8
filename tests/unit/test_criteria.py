"""What counts as a change: thresholds as they are asked for, and the values that they are held against."""

import pytest

from fwbench.compare.criteria import CRITERIA, Threshold, parse, values
from fwbench.errors import UserError
from fwbench.record.measurement import Metric, unavailable
from tests.unit.recorded import measured, metric

MIB = 2.0**20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latency:5%", Threshold(0.05)),
        ("latency:0%", Threshold(0.0)),
        ("latency:2.5%+1ms", Threshold(0.025, 1e-3)),
        ("latency:5%+20us", Threshold(0.05, 2e-5)),
        ("compile_time:25%+0.5s", Threshold(0.25, 0.5)),
        ("peak_memory:2%+1MiB", Threshold(0.02, MIB)),
        ("program_memory:0%+3kB", Threshold(0.0, 3000.0)),
        ("peak_memory:0%+1.5GiB", Threshold(0.0, 1536 * MIB)),
        ("peak_memory:0%+2 MB", Threshold(0.0, 2e6)),
        ("energy:10%+5mJ", Threshold(0.1, 5e-3)),
        ("throughput:15%+10 1/s", Threshold(0.15, 10.0)),
    ],
)
def test_a_threshold_is_a_share_and_an_amount_in_the_metrics_unit(text, expected):
    (found,) = parse([text], "--fail").values()
    assert (found.share, found.amount) == pytest.approx((expected.share, expected.amount))


def test_thresholds_may_be_repeated_and_separated_by_commas_and_the_last_one_counts():
    found = parse(["latency:5%, energy:10%", "latency:7%"], "--fail")
    assert found == {"latency": Threshold(0.07), "energy": Threshold(0.1)}
    assert parse([], "--fail") == {}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("latency", "'latency' is not METRIC:PERCENT%[+AMOUNT], as in"),
        ("", "'' is not METRIC:PERCENT%"),
        ("latency:5", "'latency:5' is not"),
        ("latency:-5%", "'latency:-5%' is not"),
        ("latency:5%+1", "'latency:5%+1' is not"),
        ("latency:5%+-1ms", "'latency:5%+-1ms' is not"),
        ("latency:nan%", "'latency:nan%' is not"),
        ("mean:5%", "unknown metric 'mean' in --here: choose from latency, "),
        ("peak_memory:5%+1ms", "unknown unit 'ms' of peak_memory in --here: choose from B, "),
        ("latency:5%+1MiB", "unknown unit 'MiB' of latency in --here: choose from s, ms, us"),
    ],
)
def test_what_is_no_threshold_is_refused_in_one_sentence_that_names_the_place(text, fault):
    with pytest.raises(UserError) as refused:
        parse(["energy:1%", text], "--here")
    assert fault in str(refused.value)
    assert "--here" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_amount_comes_on_top_of_the_share():
    assert Threshold(0.02, MIB).of(10 * MIB) == pytest.approx(0.12)
    assert Threshold(0.02).of(10 * MIB) == 0.02


def test_every_metric_can_be_gated_somewhere():
    assert all(criterion.paired or criterion.saved for criterion in CRITERIA.values())


def test_units_and_directions_are_those_of_the_metrics():
    assert {name: (criterion.unit, criterion.direction) for name, criterion in CRITERIA.items()} == {
        "latency": ("s", "lower"),
        "cpu_time": ("s", "lower"),
        "throughput": ("1/s", "higher"),
        "peak_memory": ("B", "lower"),
        "program_memory": ("B", "lower"),
        "compile_time": ("s", "lower"),
        "warm_start": ("s", "lower"),
        "first_call": ("s", "lower"),
        "energy": ("J", "lower"),
    }


def test_values_are_the_median_round_and_the_metrics_in_si_units():
    found = measured(
        samples=(0.3, 0.1, 0.2),
        throughput=50.0,
        metrics={
            "host_peak_memory": metric(7.0),
            "device_peak_memory": metric(5.0),
            "program_memory": metric(3.0),
            "trace_time": metric(0.5),
            "compile_time": metric(1.5),
            "energy_per_sample": metric(2.0),
        },
    )
    expected = {"throughput": 50.0, "peak_memory": 7.0, "program_memory": 3.0, "compile_time": 2.0, "energy": 2.0}
    assert values(found) == {"latency": 0.2, **expected}


def test_peak_memory_on_a_gpu_is_the_devices():
    found = measured(device="gpu", metrics={"host_peak_memory": metric(7.0), "device_peak_memory": metric(5.0)})
    assert values(found)["peak_memory"] == 5.0


def test_a_peak_from_before_the_step_is_no_value():
    peak = Metric(5.0, "an allocator", at_most=True)
    assert "peak_memory" not in values(measured(device="gpu", metrics={"device_peak_memory": peak}))
    # On a CPU it is the host's, whatever else is on the record.
    host = {"host_peak_memory": metric(7.0), "device_peak_memory": peak}
    assert values(measured(metrics=host))["peak_memory"] == 7.0


def test_what_a_process_could_not_tell_is_left_out():
    found = measured(
        throughput=0.0,
        samples=(),
        metrics={
            "trace_time": metric(0.5),
            "compile_time": unavailable("a meter", "nothing is compiled"),
        },
    )
    assert values(found) == {}


def test_a_run_that_was_saved_without_its_rounds_still_has_its_median():
    assert values(measured(samples=(), metrics={"latency_p50": metric(0.2)}))["latency"] == 0.2

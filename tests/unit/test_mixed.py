"""A list of sizes as one workload: its names, its batches and outputs, who refuses it, and its place in a table."""

import dataclasses
import json

import numpy as np
import pytest

import fwbench
from fwbench import frameworks
from fwbench.compare.cases import cases
from fwbench.meters.remembering import probe, vary
from fwbench.models import Model, mixed
from fwbench.models.project import complete
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Measurement
from fwbench.record.workload import FIELDS, Workload
from fwbench.report import calls
from fwbench.worker.process.run import Measuring
from tests.unit.fakes import FakeClock, FakeFramework, FakeProgram
from tests.unit.recorded import measured
from tests.unit.test_plugin import FAST, noops, run, saved, suite  # noqa: F401 (fixtures)

LENGTHS = (17, 128, 33, 17)
LISTED = (("length", LENGTHS),)


def model(**changed):
    inputs = {"ids": fwbench.tokens("length", vocabulary=9), "mask": fwbench.ones("length"), "scale": fwbench.normal(3)}
    networks = {"exact": "nobody:imports", "padded": "nobody:imports"}
    fields = {"torch": networks, "inputs": inputs, "axes": {"length": [LENGTHS]}, "buckets": {"padded": (32, 64, 128)}}
    return Model("mine", **{**fields, **changed})


def workload(lane="torch:exact", **fields):
    return Workload(lane, "mine", **{"batch_size": 2, "axes": LISTED, **fields})


def test_a_list_is_one_value_of_its_axis_and_the_network_is_built_for_the_largest_size():
    given = model(axes={"length": (64, LENGTHS), "width": 4})
    assert given.sweep() == [(("length", 64),), LISTED]
    assert given.sizes(LISTED) == {"length": 128, "width": 4}
    assert given.declared("length") == [64, 17, 128, 33]
    assert Model.from_json(json.loads(json.dumps(given.to_json()))) == given
    assert "buckets" not in model(buckets={}).to_json()
    for lane, buckets in {
        "torch:exact": (),
        "torch:padded": (32, 64, 128),
        "torch-compile:padded": (32, 64, 128),
    }.items():
        assert complete(given, lane).buckets == buckets
    assert complete(model(buckets=[128]), "torch:exact").buckets == (128,)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"axes": {"length": [()]}}, r"'length' has the list \[\]"),
        ({"axes": {"length": [(17,)]}}, r"'length' has the list \[17\]"),
        ({"axes": {"length": [(17, 0)]}}, "'length' has the value 0"),
        ({"axes": {"length": [(17, True)]}}, "'length' has the value True"),
        ({"axes": {"length": 17, "width": [(1, 2)]}, "buckets": {}}, "'width' .* no input"),
        ({"axes": {"length": [LENGTHS], "n": [(1, 2)]}}, "length and n"),
        ({"buckets": {"pad": (128,)}}, "'pad', which is no network"),
        ({"buckets": {"padded": (64,)}}, "length has the size 128"),
        ({"buckets": {"padded": ()}}, "length has the size 128"),
        ({"buckets": {"padded": ("128",)}}, "whole numbers"),
        ({"buckets": (64,)}, "length has the size 128"),
        ({"axes": {"length": (17, 128)}}, "no axis has one"),
    ],
)
def test_a_list_that_makes_no_sense_is_one_sentence(changed, said):
    with pytest.raises(ValueError, match=f"'mine'.*{said}"):
        model(**changed)


def test_a_workload_of_a_list_names_it_and_counts_the_samples_of_all():
    assert workload().id == "torch:exact-mine-inference-b2-length17-128-33-17"
    assert workload().subject == "mine length 17-128-33-17"
    assert [dict(one.axes)["length"] for one in workload().each] == list(LENGTHS)
    assert workload().samples == 8
    one = workload(axes=(("length", 17),))
    assert (one.each, one.samples) == ([one], 2)


def test_ids_of_long_lists_are_short_and_differ_where_the_lists_do():
    long = [workload(axes=(("length", (*range(1, 99), last)),)) for last in (99, 100)]
    assert len({each.id for each in long}) == 2
    assert all(len(each.id) < 80 and "length1-2-3-4-of99-" in each.id for each in long)


def test_a_list_survives_json_and_an_options_text():
    assert Workload.from_json(json.loads(json.dumps(workload().to_json()))) == workload()
    both = (("width", 4), *LISTED)
    assert FIELDS["axes"].parse(FIELDS["axes"].text(both)) == both
    record = json.loads(json.dumps(Measurement(workload()).to_json()))
    assert Measurement.from_json(record).workload == workload()


def test_batches_are_of_each_size_in_order_and_padded_with_zeros_where_the_network_has_buckets():
    exact, padded = (mixed.batches(complete(model(), lane), workload(lane)) for lane in ("torch:exact", "torch:padded"))
    assert [batch["ids"].shape for batch in exact] == [(2, size) for size in LENGTHS]
    assert [batch["ids"].shape for batch in padded] == [(2, size) for size in (32, 128, 64, 32)]
    for one, other, size in zip(exact, padded, LENGTHS, strict=True):
        for name in ("ids", "mask"):
            assert np.array_equal(other[name][:, :size], one[name])
            assert not other[name][:, size:].any()
        assert np.array_equal(other["scale"], one["scale"])


def test_outputs_stand_side_by_side_without_what_padding_has_added():
    def outputs(given):
        return [np.stack([batch["ids"], -batch["ids"]], axis=1) for batch in mixed.batches(given, workload())]

    exact, padded = (complete(model(), lane) for lane in ("torch:exact", "torch:padded"))
    expected = np.concatenate([output.reshape(2, -1) for output in outputs(exact)], axis=1)
    assert expected.shape == (2, 2 * sum(LENGTHS))
    assert np.array_equal(mixed.together(exact, workload(), outputs(exact)), expected)
    assert np.array_equal(mixed.together(padded, workload(), outputs(padded)), expected)
    # An axis that does not follow the buckets is no padded one, even if it has the size of one of them.
    assert mixed.together(padded, workload(), [np.ones((2, 32)) for _ in LENGTHS]).shape == (2, 4 * 32)


class Mixing(FakeFramework):
    mixes = True


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mode": "train_step"}, "train_step"),
        ({"devices": 2}, "one device"),
        ({"target": "h100"}, "this machine"),
        ({"call": "module"}, "call=module"),
    ],
)
def test_a_list_is_played_in_inference_by_lanes_that_say_that_they_can(fields, said):
    assert said in Mixing().refusal(workload(**fields), model())
    assert Mixing().refusal(workload(**fields, axes=(("length", 17),)), model()) is None
    assert "torch:exact takes no list" in FakeFramework().refusal(workload(), model())
    assert Mixing().refusal(workload(), model()) is None
    assert Mixing(reason="no GPU").refusal(workload(), model()) == "no GPU"


def test_throughput_counts_the_samples_of_all_sizes(monkeypatch, clock, protocol):
    def throughput(given):
        monkeypatch.setattr(frameworks, "load", lambda adapter: Mixing(FakeProgram(clock)))
        return Measuring(given, LANES["noop"], model(), protocol, print, clock).run().value("throughput")

    assert throughput(workload()) == pytest.approx(4 * throughput(workload(axes=(("length", 17),))))


def test_a_program_of_a_list_keeps_its_batches():
    class Rotating(FakeProgram):
        def rotate(self, batches):
            raise AssertionError("the batches of a list are the program's own")

    program = Rotating(FakeClock())
    assert vary(program, model(), workload()) == 1
    assert probe(program, model(), workload(), 1.0, FakeClock()) == {}


def test_a_table_with_a_list_shows_how_often_each_lane_has_compiled():
    def row(lane, compilations, axes=LISTED):
        found = dataclasses.replace(measured(), workload=workload(lane, axes=axes))
        return dataclasses.replace(found, program=Fingerprint(compilations=compilations))

    listed = calls.table("calls", "", cases([row("torch:exact", None), row("jax:exact", 3)]), None)
    place = [column.name for column in listed.columns].index("compilations")
    found = [(each.values[3], each.values[place]) for each in listed.rows]
    assert found == [("17-128-33-17", None), ("17-128-33-17", 3)]
    single = calls.table("calls", "", cases([row("jax:exact", 1, (("length", 17),))]), None)
    assert "compilations" not in [column.name for column in single.columns]


def test_a_list_is_one_test_whose_record_has_it_whole(suite):  # noqa: F811
    suite.makepyfile(
        test_suite="""
        import fwbench

        mine = fwbench.Model(
            "mine", noop="nobody:imports", inputs=fwbench.normal("length"), axes={"length": (8, [16, 64])}
        )

        @fwbench.benchmark(mine, lanes=["noop"])
        def test_speed(fwbench_measure):
            fwbench_measure()
        """
    )
    result = run(suite, "--benchmark-only", "--benchmark-autosave", "-rs", *FAST)
    result.assert_outcomes(passed=1, skipped=1)
    assert any("takes no list" in line for line in result.outlines)
    (benchmark,) = saved(suite)["benchmarks"]
    assert benchmark["params"]["length"] == 8

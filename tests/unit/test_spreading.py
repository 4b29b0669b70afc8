"""A user's own models under `fwbench.benchmark`: parameters, ids, options, and a sentence for each fault."""

from types import SimpleNamespace

import pytest

from fwbench.plugin import spreading
from fwbench.record.workload import Workload
from tests.unit.shared import needs
from tests.unit.test_plugin import FAST, noops, refused, run, saved, suite  # noqa: F401 (fixtures)

OWN = """
    import fwbench

    mine = fwbench.Model(
        "mine",
        noop="nobody:imports",
        inputs={"ids": fwbench.tokens("length", vocabulary=9), "scale": fwbench.normal("width")},
        axes={"length": (16, 64), "width": 4},
    )
    other = fwbench.Model("other", noop="nobody:imports", inputs=fwbench.image(8, 8, 3))

    @fwbench.benchmark(mine, other, lanes=["noop"], modes=["inference", "train_step"], batch_sizes=[1, 8])
    def test_speed(fwbench_measure):
        fwbench_measure()
"""


@pytest.fixture
def own(suite):  # noqa: F811
    suite.makepyfile(test_suite=OWN)
    return suite


def collected(suite, *arguments):  # noqa: F811
    result = run(suite, "--collect-only", "-q", *arguments)
    return [line.partition("[")[2].rstrip("]") for line in result.outlines if "test_speed[" in line]


def test_axes_with_several_values_are_part_of_the_ids_and_a_fixed_one_is_not(own):
    assert collected(own, "-k", "mine and inference and b8") == [
        "noop-mine-inference-b8-length16",
        "noop-mine-inference-b8-length64",
    ]
    assert len(collected(own)) == (2 + 1) * 2 * 2


def test_axes_are_parameters_of_the_record_and_groups_of_their_own(own):
    result = run(own, "--benchmark-only", "--benchmark-autosave", "-k", "mine and inference and b1", *FAST)
    result.assert_outcomes(passed=2)
    benchmarks = saved(own)["benchmarks"]
    assert [b["params"]["length"] for b in benchmarks] == [16, 64]
    assert [b["extra_info"]["workload"]["axes"] for b in benchmarks] == [{"length": 16}, {"length": 64}]
    assert [b["group"] for b in benchmarks] == ["mine inference b1 length16", "mine inference b1 length64"]


def test_options_choose_among_a_users_models_and_replace_their_batch_sizes(own):
    assert collected(own, "--fwbench-models=other", "--fwbench-batch-sizes=3") == [
        "noop-other-inference-b3",
        "noop-other-train_step-b3",
    ]


def test_a_mark_selects_a_mode(own):
    found = collected(own, "-m", "train_step")
    assert len(found) == 6
    assert all("-train_step-" in name for name in found)


def test_the_number_of_devices_is_a_parameter_where_a_workload_has_several():
    given = {}

    class Metafunc:
        definition = SimpleNamespace(iter_markers=lambda name: ())
        _arg2fixturedefs, fixturenames = {}, []

        def parametrize(self, names, values):
            given["names"], given["last"] = names, [each.values[-1] for each in values]

    one, two = (Workload("jax", "mlp", batch_size=2, devices=number) for number in (1, 2))
    spreading.parametrize(Metafunc(), [one])
    assert given["names"] == ["framework", "model", "mode", "batch_size", "precision"]
    spreading.parametrize(Metafunc(), [one, two])
    assert (given["names"][-1], given["last"]) == ("devices", [1, 2])


def test_a_model_that_nobody_has_is_one_sentence_that_names_the_users_own(own):
    result = run(own, "--fwbench-models=others")
    refused(result, "unknown model 'others' in --fwbench-models: the nearest is 'other'.")


@needs("studies")
def test_a_study_leaves_a_users_tests_out(own):
    assert collected(own, "--fwbench-study=simple-cnn") == []


# By the decorator of a test, what is said of it.
WRONG = {
    'fwbench.benchmark(mine, lanes=["nop"])': "unknown lane 'nop': the nearest is 'noop'",
    'fwbench.benchmark(mine, modes=["infer"])': "unknown mode 'infer': the nearest is 'inference'",
    'fwbench.benchmark("resnet51")': "unknown model 'resnet51': the nearest is 'resnet50'",
    "fwbench.benchmark(3)": "3 is no model: give an fwbench.Model, or the name of one of the suite's",
    'fwbench.benchmark(fwbench.Model("x", inputs=fwbench.normal(3), torhc="mine:Net"))': (
        "unknown framework 'torhc' of the model 'x': the nearest is 'torch'"
    ),
    'fwbench.benchmark(mine, fwbench.Model("mine", inputs=fwbench.normal(3), noop="x:y"))': (
        "two different models are called 'mine'*rename one of them"
    ),
    "fwbench.proof(mine)": "mine has a network in noop alone, so there is nothing to prove",
}


def test_a_fault_is_one_sentence_and_costs_its_own_test_alone(own):
    tests = [
        f"    @{decorator}\n    def test_wrong_{number}(fwbench_measure):\n        fwbench_measure()\n"
        for number, decorator in enumerate(WRONG)
    ]
    own.makepyfile(test_suite="\n".join([OWN, *tests]))
    result = run(own, "--benchmark-disable", "-k", "wrong or (other and inference and b1)", "-rEf")
    result.assert_outcomes(passed=1, errors=len(WRONG))
    told = [f"test_suite.py::test_wrong_{number}: {sentence}" for number, sentence in enumerate(WRONG.values())]
    result.stdout.fnmatch_lines_random(told)
    assert "Traceback" not in result.stdout.str()


def test_a_test_that_names_no_model_says_so(suite):  # noqa: F811
    suite.makepyfile(test_suite="def test_x(fwbench_measure):\n    fwbench_measure()\n")
    result = run(suite, "-rE")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*test_x does not say of which model: decorate it with @fwbench.benchmark(model, ...)"]
    )

"""fwbench installed beside a project that does not use it, or hardly: everything there stays as it was."""

import json
import re

import pytest

from tests.unit.shared import ONE_PLAIN_PAIR, git

PLAIN = """
    import time

    def test_plain():
        pass

    def test_length(benchmark):
        assert benchmark(len, "abc") == 3

    def test_own(benchmark):
        benchmark.pedantic(len, args=("abc",), rounds=5)
"""
OURS = """
    import fwbench
    import pytest

    @fwbench.benchmark("noop", lanes=["noop"])
    def test_ours(fwbench_measure):
        fwbench_measure()
"""
STRICT = """
    [pytest]
    addopts = --strict-markers --strict-config
    filterwarnings = error
"""
FAST = ("--benchmark-max-time=0", "--benchmark-min-rounds=5")
OFF = ("-p", "no:fwbench.plugin")


@pytest.fixture
def run(stranger, core):
    """pytest, in an interpreter that has no plugins but fwbench, pytest-benchmark and pytest-xdist."""

    def run_pytest(*arguments):
        return stranger.run(core, "-m", "pytest", "-p", "no:cacheprovider", *arguments)

    return run_pytest


def stored(stranger, name="x.json"):
    return json.loads((stranger.path / name).read_text())


def timeless(result):
    """The lines on standard output, with every number and what depends on it left out."""
    numbers = re.compile(r"[\d.,]+(?:e[+-]\d+)?|\b[mnu]?s\b|\([^()]*\)|[KM]?ops\b", re.IGNORECASE)
    return sorted(" ".join(numbers.sub("", line).strip(" =-").split()) for line in result.outlines)


# Idle


@pytest.mark.slow
def test_an_idle_plugin_imports_next_to_nothing(stranger, core):
    stranger.makepyfile(test_plain=PLAIN)
    stranger.makepyfile(
        main="""
        import json, sys
        import pytest

        code = pytest.main(["-q", "-p", "no:cacheprovider", "test_plain.py"])
        print(json.dumps({"code": int(code), "modules": sorted(sys.modules)}))
        """
    )
    told = json.loads(stranger.run(core, "main.py").outlines[-1])
    assert told["code"] == 0
    assert "fwbench.plugin" in told["modules"]
    assert not {"numpy", "scipy", "pynvml", "torch", "jax"} & set(told["modules"])
    ours = {name for name in told["modules"] if name.startswith("fwbench.")}
    assert ours == {"fwbench.plugin", "fwbench.plugin.options", "fwbench.plugin.waiting"}


def test_the_public_face_imports_nothing_before_it_is_used(stranger, core):
    stranger.makepyfile(
        main="""
        import sys
        import fwbench

        assert not [name for name in sys.modules if name.startswith(("fwbench.", "numpy"))]
        assert fwbench.Model("m", torch="a:b", inputs=fwbench.image(2, 2, 3)).name == "m"
        assert not {"numpy", "torch", "jax"} & set(sys.modules)
        names = {}
        exec("from fwbench import *", names)
        assert set(fwbench.__all__) <= set(names)
        assert not hasattr(fwbench, "nonsense")
        """
    )
    assert stranger.run(core, "main.py").ret == 0


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--help", ["*--fwbench-fail=METRIC:PERCENT[[]+AMOUNT]", "*latency:5% or*", "*quick, ci, paper*"]),
        ("--fixtures", ["fwbench_measure*", "*Measure the test's workload*"]),
        ("--markers", ["@pytest.mark.fwbench(*", "@pytest.mark.fwbench_fail(*", "@pytest.mark.benchmark*"]),
    ],
)
def test_what_pytest_tells_of_itself_names_ours(stranger, run, monkeypatch, option, expected):
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    stranger.makeini(STRICT)
    result = run(option)
    assert result.ret == 0
    result.stdout.fnmatch_lines_random(expected)
    assert not result.stderr.lines


@pytest.mark.slow
def test_a_strict_project_runs_and_collects_as_without_us(stranger, run):
    stranger.makeini(STRICT)
    stranger.makepyfile(test_plain=PLAIN)
    run("-q").assert_outcomes(passed=3)
    with_us, without = run("--collect-only", "-q"), run("--collect-only", "-q", *OFF)
    assert (with_us.ret, timeless(with_us)) == (without.ret, timeless(without))
    run("-q", "-p", "no:benchmark", "-k", "test_plain and not benchmark").assert_outcomes(passed=1, errors=2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("-n", "2", "--benchmark-autosave", "--benchmark-json=x.json"),
        ("-n", "2", "--benchmark-only"),
        ("--benchmark-autosave", "--benchmark-json=x.json", "--benchmark-compare-fail=mean:5%"),
    ],
    ids=["workers-save", "workers-only", "alone"],
)
def test_plain_benchmarks_behave_as_without_us(stranger, run, arguments):
    stranger.makepyfile(test_plain=PLAIN)
    told = []
    for switch in ((), OFF):
        result = run("-q", *FAST, *switch, *arguments)
        files = sorted(path.suffix for path in stranger.path.rglob("*.json") if path.stat().st_size)
        for path in stranger.path.rglob("*.json"):
            path.unlink()
        told.append((result.ret, timeless(result), files))
    assert told[0] == told[1]


@pytest.mark.slow
def test_records_of_plain_benchmarks_are_stored_as_without_us(stranger, run):
    """Where a test of ours is collected beside them and left out, and where it is measured."""
    stranger.makepyfile(test_both=OURS + PLAIN)
    chosen = ("-k", "test_length or test_own")
    for name, options in (("beside", ()), ("with", chosen), ("without", (*chosen, *OFF))):
        counts = {"passed": 2, "deselected": 2} if options else {"passed": 4}
        run("-q", f"--benchmark-json={name}.json", *FAST, *options).assert_outcomes(**counts)
    assert shape(stored(stranger, "with.json")) == shape(stored(stranger, "without.json"))
    ours, *others = sorted(stored(stranger, "beside.json")["benchmarks"], key=lambda each: "noop" not in each["name"])
    assert ours["extra_info"]["metrics"]["throughput"]["value"] > 0
    assert unmeasured(others) == unmeasured(stored(stranger, "without.json")["benchmarks"])
    assert others[1]["stats"]["rounds"] == len(others[1]["stats"]["data"]) == 5


def unmeasured(benchmarks):
    return [{key: value for key, value in each.items() if key != "stats"} for each in benchmarks]


def shape(data):
    """A record without what differs from run to run: all its keys, and a benchmark's settings."""
    return set(data), data["machine_info"].keys(), data["machine_info"]["cpu"].keys(), unmeasured(data["benchmarks"])


# Beside ours


def test_plain_benchmarks_are_gated_without_any_framework(stranger, run):
    """As the workflow in docs/plain.md does it."""
    stranger.makepyfile(
        words="def count(): return sum(range(2000))",
        test_words="import words\n\ndef test_count(benchmark):\n    benchmark(words.count)\n",
    )
    stranger.makeini("[pytest]\npythonpath = .\n")
    stranger.makeconftest(ONE_PLAIN_PAIR)
    for arguments in (["init"], ["add", "."], ["commit", "-m", "one"]):
        git(stranger.path, *arguments)
    stranger.makepyfile(words="def count(): return sum(range(4000))")
    result = run("--benchmark-only", "--fwbench-profile=ci", "--fwbench-against=HEAD", "--fwbench-summary=x.json")
    summary = stored(stranger)
    assert (result.ret, summary["exit_code"], summary["reason"]) == (1, 1, "1 regressed")


def test_a_users_own_fixtures_are_left_alone(stranger, run):
    """In tests of their own, and in one of ours that uses it: a parameter must not take its place."""
    names = ("measure", "workload", "framework", "model", "mode", "batch_size", "precision")
    for name in names:
        stranger.makepyfile(
            **{
                f"test_{name}": f"""
                import fwbench
                import pytest

                @pytest.fixture
                def {name}():
                    return ["the user's own"]

                def test_plain({name}):
                    assert {name} == ["the user's own"]

                @fwbench.benchmark("noop", lanes=["noop"])
                def test_ours({name}, fwbench_measure):
                    assert {name} == ["the user's own"]
                    assert fwbench_measure().workload.model == "noop"
                """
            }
        )
    run("-q", "--benchmark-disable").assert_outcomes(passed=2 * len(names))


def test_a_users_own_parameters_stand_beside_ours(stranger, run):
    stranger.makepyfile(
        test_own="""
        import fwbench
        import pytest

        @pytest.mark.parametrize("size, mode", [(1, "fast"), (2, "slow")])
        @fwbench.benchmark("noop", lanes=["noop"], batch_sizes=[1, 2])
        def test_ours(size, mode, batch_size, fwbench_mode, fwbench_measure):
            assert (size, mode) in ((1, "fast"), (2, "slow"))
            assert fwbench_mode == "inference"
            assert fwbench_measure().workload.batch_size == batch_size
        """
    )
    run("-q", *FAST, "--benchmark-group-by=param:fwbench_mode,param:mode").assert_outcomes(passed=4)


# Switched off


def test_switched_off_ours_have_unknown_markers_and_no_fixtures(stranger, run):
    stranger.makepyfile(test_both=OURS + PLAIN)
    result = run(*OFF)
    result.assert_outcomes(passed=3, errors=1, warnings=1)
    result.stdout.fnmatch_lines(["*fixture 'fwbench_measure' not found", "*Unknown pytest.mark.fwbench *"])
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


def test_without_pytest_benchmark_only_ours_fail(stranger, run):
    stranger.makepyfile(
        test_both=OURS
        + """
    @fwbench.proof("mlp")
    def test_proof(fwbench_prove):
        fwbench_prove()

    def test_plain():
        pass
    """
    )
    result = run("-p", "no:benchmark")
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["*fixture 'benchmark' not found", "fwbench cannot measure without pytest-benchmark*"])
    result = run("-p", "no:benchmark", "--fwbench-profile=quick")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: fwbench cannot measure without pytest-benchmark, *: leave that out."])

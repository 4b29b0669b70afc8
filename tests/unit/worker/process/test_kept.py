"""What compilers made of a workload: when a later run loads it, and what it then says of compiling."""

import dataclasses
import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from fwbench import frameworks
from fwbench.frameworks.contract import CompileTimes
from fwbench.machine.facts import Facts, asked, provide
from fwbench.models import CATALOG
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload
from fwbench.worker.process.run import Measuring
from tests.unit.fakes import FakeFramework, FakeProgram
from tests.unit.recorded import MACHINE

COLD = ("trace_time", "compile_time", "time_to_steady")


class Compiling(FakeProgram):
    """Takes 100 s to compile, unless its compiler finds in its cache what it made before."""

    digest = "a program"

    def compile(self):
        made = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "aa", "made.py")
        seconds = 1.0 if made.exists() else 100.0
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text("x = 1")
        self.clock.advance(seconds)
        return CompileTimes(seconds / 4, seconds)

    def fingerprint(self):
        return Fingerprint(digest=self.digest)


@pytest.fixture
def bench(monkeypatch, clock, protocol, tmp_path):
    """Measure a program in a process of its own, with what earlier ones have kept."""
    program = Compiling(clock)
    monkeypatch.setattr(frameworks, "load", lambda adapter: FakeFramework(program))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)

    def measure(keep=True, digest="a program", batch_size=1, run="first", settings=None, witness=None, shared=True):
        program.digest = digest
        caches = tmp_path / "caches"
        shutil.rmtree(caches, ignore_errors=True)
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(caches / "inductor"))
        for name, value in (settings or {}).items():
            monkeypatch.setenv(name, value)
        workload = Workload("torch-compile", "noop", batch_size=batch_size)
        told = Facts(asked(tmp_path / "facts", run, MACHINE) if shared else None, workload.id)
        amounts = dataclasses.replace(protocol)
        lane, model = LANES["torch-compile"], CATALOG["noop"]
        measuring = Measuring(workload, lane, model, amounts, lambda _: None, clock, told, keep=keep)
        measuring.witness = SimpleNamespace(sources=lambda: witness or {}, edited=list, building=nullcontext)
        found = measuring.run()
        assert found.failure is None
        return found

    return measure


def stage(measurement):
    (only,) = {"compile", "load"} & measurement.stages.keys()
    return only


def test_a_later_run_loads_the_program_and_tells_how_long_it_took_to_compile(bench):
    first, second = bench(), bench(run="second")
    assert (stage(first), stage(second)) == ("compile", "load")
    assert first.value("compile_time") == 100.0
    for name in COLD:
        assert second.value(name) == first.value(name)
        assert second.metrics[name].source.startswith(f"{first.metrics[name].source}, in {first.workload.id} on ")
    # The third takes it from the first, not from the second.
    third = bench(run="third")
    assert {name: third.metrics[name] for name in COLD} == {name: second.metrics[name] for name in COLD}


def test_what_a_run_may_not_keep_is_compiled_again(bench):
    assert [stage(bench(keep=False)) for _ in range(2)] == ["compile", "compile"]
    assert stage(bench()) == "compile"
    assert stage(bench(keep=False)) == "compile"


def test_without_facts_nothing_is_kept(bench):
    assert [stage(bench(shared=False)) for _ in range(2)] == ["compile", "compile"]


@pytest.mark.parametrize(
    "other",
    [{"batch_size": 2}, {"settings": {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}}, {"witness": {"mine.py": "edited"}}],
    ids=lambda other: "".join(other),
)
def test_of_another_workload_setting_or_source_nothing_is_loaded(bench, other):
    bench()
    found = bench(**other)
    assert (stage(found), found.value("compile_time")) == ("compile", 100.0)


def test_another_program_of_the_same_sources_has_no_compile_time(bench):
    bench()
    found = bench(digest="another")
    assert stage(found) == "load"
    for name in COLD:
        assert found.value(name) is None
        assert found.metrics[name].reason


def test_files_that_are_gone_are_made_again(bench, tmp_path):
    bench()
    (files,) = (tmp_path / "facts").glob("*.files")
    shutil.rmtree(files)
    found = bench()
    assert (stage(found), found.value("compile_time")) == ("compile", 100.0)
    assert stage(bench()) == "load"


def test_files_of_outdated_facts_are_removed(bench, tmp_path):
    bench()
    (files,) = (tmp_path / "facts").glob("*.files")
    long_ago = files.with_suffix("").stat().st_mtime - 40 * 86400
    os.utime(files.with_suffix(""), (long_ago, long_ago))
    bench(batch_size=2)
    left = list((tmp_path / "facts").glob("*.files"))
    assert len(left) == 1
    assert files not in left


def test_processes_that_take_turns_find_all_that_is_kept(bench, tmp_path):
    bench()
    provide(tmp_path / "facts", tmp_path / "turns")
    assert (tmp_path / "turns" / "inductor" / "aa" / "made.py").read_text() == "x = 1"
    provide(tmp_path / "nowhere", tmp_path / "turns")

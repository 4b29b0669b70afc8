"""Several processes' measurements of one workload made one, and what a run's processes share."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from fwbench.gates import Gate
from fwbench.machine import machine
from fwbench.models.project import Project
from fwbench.plugin import session
from fwbench.record.machine import AcceleratorProcess, AcceleratorState
from fwbench.record.measurement import Metric, Moment, unavailable
from fwbench.suite.profiles import PROFILES
from fwbench.worker.chain import pooled, several
from tests.unit.recorded import measured

P95 = Metric(0.3, "synchronised calls, n=59")
TOO_FEW = unavailable("synchronised calls, n=58", "n/a (n=58): p95 needs 59 samples")


def test_one_process_is_left_as_it_is():
    assert pooled([measured()]) == measured()


@pytest.mark.parametrize(
    "other", [{"batch_size": 4, "unfit": (8,)}, {"batch_size": 8, "settings": {"fallback_flags": "--mild"}}]
)
def test_processes_of_another_batch_or_with_other_flags_are_measured_again(other):
    """Where the second one needs it, the first one has it, too."""
    plain, changed = measured(batch_size=8), measured(**other)
    made = iter([plain, changed, changed, changed, None])
    measure = several(lambda *_: next(made), 3)
    found = measure(plain.workload, PROFILES["quick"], lambda _: None)
    assert (len(found.processes), found.workload, found.fallback) == (3, changed.workload, changed.fallback)
    assert next(made) is None


def test_samples_are_joined_metrics_are_medians_and_each_process_keeps_its_values():
    found = pooled([measured(throughput=value, samples=(0.1, value, 9.0)) for value in (1.0, 5.0, 2.0)])
    assert found.samples == (0.1, 1.0, 9.0, 0.1, 5.0, 9.0, 0.1, 2.0, 9.0)
    assert found.value("throughput") == 2.0
    assert found.metrics["throughput"].source.endswith("median of 3 processes")
    assert [process["throughput"] for process in found.processes] == [1.0, 5.0, 2.0]
    assert [process["latency"] for process in found.processes] == [1.0, 5.0, 2.0]


def test_who_disturbed_any_process_is_kept():
    alone = measured(accelerator=(Moment("before", AcceleratorState()),))
    crowded = measured(accelerator=(Moment("before", AcceleratorState(processes=(AcceleratorProcess(7, None),))),))
    assert pooled([alone, crowded]).accelerator == (*alone.accelerator, *crowded.accelerator)


def test_a_metric_that_some_processes_could_not_tell_is_the_others_median():
    for metrics in ((P95, TOO_FEW, P95), (TOO_FEW, P95, P95)):
        found = pooled([measured(metrics={"latency_p95": metric}) for metric in metrics]).metrics["latency_p95"]
        assert (found.value, found.reason) == (0.3, None)
        assert found.source == "synchronised calls, n=59; median of 2 processes"


def test_a_metric_that_the_first_process_does_not_know_is_kept():
    assert pooled([measured(), measured(metrics={"latency_p95": P95})]).value("latency_p95") == 0.3


def test_a_metric_that_no_process_could_tell_says_why():
    found = pooled([measured(metrics={"latency_p95": TOO_FEW})] * 2).metrics["latency_p95"]
    assert (found.value, found.reason) == (None, TOO_FEW.reason)


@pytest.mark.parametrize(
    ("processes", "minutes", "device", "keeps"),
    [(1, 6.0, "gpu", True), (3, 6.0, "gpu", False), (1, 0.0, "gpu", False), (1, 6.0, "cpu", True)],
)
def test_several_processes_of_a_workload_load_nothing_that_another_has_compiled(
    tmp_path, monkeypatch, processes, minutes, device, keeps
):
    """Each is to draw a GPU's kernels for itself."""
    made, provided = [], []
    monkeypatch.setattr(session.Workers, "__init__", lambda *_, **how: made.append(how))
    monkeypatch.setattr(session.Workers, "close", lambda workers: None)
    monkeypatch.setattr(session, "provide", lambda facts, caches: provided.append(facts))
    selection = SimpleNamespace(
        minutes=minutes, device=device, processes=processes, pythons={}, fit_batch=False, patience=0.0, lowers=None
    )
    gate = Gate(SimpleNamespace(getoption=lambda name: None))
    with contextlib.closing(session.Session(selection, machine(), tmp_path, Project(Path(), ()), {}, gate)):
        assert [how["keep"] for how in made] == [keeps]
    assert bool(provided) == (keeps and device == "gpu")

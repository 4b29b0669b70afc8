"""The preparation of a job before anything is timed: the ranks join and agree, and the program is built."""

import gc
import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fwbench.frameworks.contract import Framework, Program, Ranks
from fwbench.machine import nvml, versions
from fwbench.models import stateful
from fwbench.models.sources import sources
from fwbench.models.weights import Weights, canonical, digest
from fwbench.record.lanes import RECORDED, Lane
from fwbench.record.measurement import QUANTISED, Metric
from fwbench.worker.process.faults import ToldError
from fwbench.worker.process.job import Job


class DisagreementError(ToldError):
    """The ranks are not copies of each other; the sentence says what differs."""


def join(job: Job, framework: Framework, ranks: Ranks) -> None:
    """Join the other ranks, and see that they have the same software and sources.

    If these differ, or two ranks have the same GPU, this raises a DisagreementError; and a ToldError if the framework
    cannot join them.
    """
    paths = [job.model.networks.get(job.lane.framework, ""), *job.model.functions(job.lane.framework)]
    own = sources(path for path in paths if ":" in path).files
    facts = {
        "Python": ".".join(map(str, sys.version_info[:3])),
        **versions_of(job.lane),
        "fwbench's sources": package_sources(),
        **{f"the source of {module}": digest for module, digest in own.items()},
    }
    same(job, facts)
    _apart(job, ranks)
    try:
        framework.join(ranks)
    except OSError as error:
        raise ToldError(str(error)) from error
    # All ranks have joined here, before anything waits for the first use of a device.
    ranks.agree(0.0)
    source = "from the start of the process, imports of the framework included"
    job.metrics["join_time"] = Metric(job.clock() - job.began, source)


def _apart(job: Job, ranks: Ranks) -> None:
    """See that no two ranks have the same GPU, or raise a DisagreementError that says which."""
    gpu = nvml.find(number=job.gpu) if job.workload.device == "gpu" else None
    owners: dict[str, int] = {}
    for rank, uuid in enumerate(ranks.gather(gpu.uuid if isinstance(gpu, nvml.Gpu) else None)):
        if uuid is not None and owners.setdefault(uuid, rank) != rank:
            raise DisagreementError(
                f"ranks {owners[uuid]} and {rank} have the same GPU ({uuid}), so there are fewer devices than the "
                f"{ranks.size} that were asked for: ask for fewer, or let the launcher give each rank its own"
            )


def same(job: Job, facts: Mapping[str, Any]) -> None:
    """See that all ranks have the same value of each fact, or raise a DisagreementError that says which has not."""
    if job.ranks is None:
        return
    first, *others = job.ranks.gather(facts)
    for rank, other in enumerate(others, 1):
        for name in sorted(first.keys() | other.keys()):
            mine, its = (of.get(name, "none") for of in (first, other))
            if mine != its:
                raise DisagreementError(
                    f"the ranks do not agree: {name} is {its} in rank {rank}, and {mine} in rank 0; start all "
                    "ranks from one environment and one checkout"
                )


def build(job: Job, framework: Framework, horizon: int) -> Program:
    """Build the program with the weights that every lane starts from, after a check that all ranks have the same."""
    model, workload = job.model, job.workload
    job.shapes = framework.weight_shapes(model, stateful.sizes(model, workload))
    weights = starting_weights(job)
    job.parity["weights"] = digest(weights)
    same(job, {"the digest of the weights": job.parity["weights"]})
    program = framework.build(workload, model, weights, horizon)
    # A copy on the host would count as the program's memory.
    del weights
    quantised = {QUANTISED: job.lane.quantised} if job.lane.quantised else {}
    job.settings = {**program.settings, **environment(job.lane), **quantised}
    gc.collect()
    if job.protocol.disable_gc:
        gc.disable()
    return program


def starting_weights(job: Job) -> Weights:
    """The weights that every lane starts from."""
    return canonical(job.workload.weights, job.model, job.shapes, job.workload.seed, job.start)


def package_sources() -> str:
    """Digest of this fwbench's source files."""
    package = Path(__file__).resolve().parents[2]
    sha = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        sha.update(path.relative_to(package).as_posix().encode())
        sha.update(path.read_bytes())
    return sha.hexdigest()[:16]


def versions_of(lane: Lane) -> dict[str, str]:
    """Versions of the lane's distributions and libraries, and a loaded module's own version where it differs."""
    by_name = versions((*lane.distributions, *lane.libraries))
    for name in lane.distributions:
        own = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(own, str) and own != by_name.get(name):
            by_name[f"{name}.__version__"] = own
    return by_name


def environment(lane: Lane) -> dict[str, Any]:
    """The variables that are set and change what is measured; not those of compiler caches, which are empty."""
    recorded = (*RECORDED, *lane.recorded, *(variable for variable, _ in lane.fallback))
    settings: dict[str, Any] = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(recorded) and name not in {*lane.caches, *lane.sharing}
    }
    if hasattr(os, "sched_getaffinity"):
        settings["cpus"] = sorted(os.sched_getaffinity(0))
    return settings

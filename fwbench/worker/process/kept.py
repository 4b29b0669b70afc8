"""Compiled programs of a workload, kept for later runs: on a GPU compiling takes most of a run.

Each workload has a folder of its own, so that every compilation begins with empty caches. A process that loads a
program takes over the times of its compilation.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fwbench.frameworks.contract import Framework
from fwbench.machine.facts import COMPILED, content, metrics
from fwbench.record.measurement import Metric, unavailable
from fwbench.worker.process.building import package_sources
from fwbench.worker.process.facts import conditions
from fwbench.worker.process.job import Job

# Metrics that only a process with empty caches can measure, and their source.
_COLD, _SOURCE = ("trace_time", "compile_time", "time_to_steady"), "cold caches, fresh process"


class Kept:
    """Fills a job's compiler caches with the programs that an earlier run compiled for the same workload.

    Made after the program was built and before it is compiled, and asked to `settle` when the program is fingerprinted.
    Its `stage` is the name of the compiling stage: `compile`, or `load` if a kept program is loaded.
    """

    def __init__(self, job: Job, framework: Framework) -> None:
        self._job = job
        self.stage = "compile"
        self._known: tuple[str, dict[str, Metric]] | None = None
        named = (os.environ.get(name) for name in job.lane.caches)
        # Programs are kept beside the facts about them.
        self._caches = [Path(folder) for folder in named if folder] if job.keep and job.facts.shared else []
        if not self._caches:
            return
        self._conditions = {
            **conditions(job, framework),
            "workload": job.workload.to_json(),
            "model": job.model.to_json(),
            "fwbench": package_sources(),
            "sources": job.witness.sources() if job.witness else {},
        }
        self._folder = job.facts.folder(COMPILED, self._conditions)
        self._known = job.facts.known(COMPILED, self._conditions, _decoded)
        if self._known and self._folder.is_dir():
            try:
                for cache in self._caches:
                    if (self._folder / cache.name).is_dir():
                        shutil.copytree(self._folder / cache.name, cache, dirs_exist_ok=True)
                self.stage = "load"
            except (OSError, shutil.Error):
                for cache in self._caches:
                    shutil.rmtree(cache, ignore_errors=True)

    def settle(self) -> None:
        """Take over the times of a program that was loaded, or keep one that was compiled."""
        digest = self._job.program.digest if self._job.program else None
        if self.stage == "load":
            assert self._known
            made, known = self._known
            if made != digest:
                reason = f"an earlier run has kept another program of the same sources: remove {self._folder}"
                known = {name: unavailable(_SOURCE, reason) for name in _COLD}
            self._job.metrics.update(known)
        elif digest and any(file.is_file() for cache in self._caches for file in cache.rglob("*")):
            with contextlib.suppress(OSError, shutil.Error):
                self._keep()
                timed = {name: of for name in _COLD if (of := self._job.metrics.get(name)) and of.value is not None}
                self._job.facts.note(COMPILED, self._conditions, {"digest": digest, "metrics": content(timed)})

    def _keep(self) -> None:
        for old in self._job.facts.outdated_folders():
            shutil.rmtree(old, ignore_errors=True)
        # Another run may keep the same program at this moment.
        new = self._folder.with_name(f"{self._folder.name}.{os.getpid()}")
        try:
            for cache in filter(Path.is_dir, self._caches):
                shutil.copytree(cache, new / cache.name)
            shutil.rmtree(self._folder, ignore_errors=True)
            new.rename(self._folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _decoded(content: Mapping[str, Any], found: str) -> tuple[str, dict[str, Metric]]:
    return str(content["digest"]), metrics(content["metrics"], found)

"""Which workloads a run measures, from the options that were checked and a profile's defaults behind them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from fwbench.record.workload import TRAINING, Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.studies import Part


@dataclass(frozen=True)
class Selection:
    """The axes of a run and its protocol.

    Attributes:
        parts: what to measure, in order, the options worked in.
        precisions: each of them for every part.
        study: the name of the study that was asked for, whose workloads alone are measured.
        pythons: interpreter by framework, for those that do not run under pytest's own.
        weights: `drawn` or `pretrained`.
        device: `cpu` or `gpu`.
        training: fields of the workloads of both training modes: `accumulate` and `remat`.
        data_path: where the data of mode `fit` is.
        threads: of every lane.
        processes: that measure each workload.
    """

    protocol: Protocol
    parts: tuple[Part, ...]
    precisions: tuple[str, ...]
    study: str | None
    weights: str
    pythons: Mapping[str, str]
    device: str
    training: Mapping[str, Any]
    data_path: str | None
    threads: int
    processes: int

    @property
    def lanes(self) -> tuple[str, ...]:
        """All lanes of all parts."""
        return tuple(dict.fromkeys(lane for part in self.parts for lane in part.lanes))

    def workloads(self, mode: str) -> list[Workload]:
        """Every combination in one mode; lanes of one model and batch size stand side by side.

        Raises:
            pytest.UsageError: a combination makes no sense; one sentence.
        """
        try:
            return [
                Workload(
                    lane,
                    model,
                    mode,
                    batch_size,
                    precision,
                    self.device,
                    self.weights,
                    seed=seed,
                    **(self._training(part) if mode in TRAINING else {}),
                )
                for part in self.parts
                if part.mode == mode
                for model in part.models
                for batch_size in part.batch_sizes
                for precision in self.precisions
                for seed in part.seeds
                for lane in part.lanes
            ]
        except ValueError as error:
            raise pytest.UsageError(f"{error}.") from None

    def _training(self, part: Part) -> dict[str, Any]:
        names = ("optimizer", "learning_rate", "variant", *(("data", "epochs") if part.mode == "fit" else ()))
        path = {"data_path": self.data_path} if part.mode == "fit" else {}
        return {name: getattr(part, name) for name in names} | path | dict(self.training)

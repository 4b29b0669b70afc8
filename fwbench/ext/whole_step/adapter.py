"""The adapter of the lane `torch-compile-step`."""

from fwbench.ext.whole_step.step import WholeStep
from fwbench.frameworks.contract import Program
from fwbench.frameworks.torch.adapter import Torch, set_threads
from fwbench.frameworks.training import HORIZON
from fwbench.models import Model
from fwbench.models.weights import Weights
from fwbench.record.workload import TRAINING, Workload


class WholeSteps(Torch):
    """PyTorch for training steps alone, each of which is one compiled program."""

    def unavailable(self, workload: Workload, model: Model) -> str | None:
        if reason := super().unavailable(workload, model):
            return reason
        if model.train_step:
            return f"the lane {workload.runner} compiles fwbench's own step: measure torch-compile"
        if workload.mode not in TRAINING or workload.accumulate > 1 or workload.remat:
            return (
                f"the lane {workload.runner} compiles training steps, without accumulation and remat: measure "
                "torch-compile"
            )
        return None

    def build(self, workload: Workload, model: Model, weights: Weights, horizon: int = HORIZON) -> Program:
        set_threads()
        return WholeStep(workload, model, weights, horizon)


FRAMEWORK = WholeSteps()

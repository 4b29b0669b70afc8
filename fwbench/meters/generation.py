"""The cost of generating text, in the field's terms: of a prompt (`prefill`), and of one further step (`decode`)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.contract import Program
from fwbench.models import Model
from fwbench.record.measurement import Metric
from fwbench.record.workload import Workload

# The name of a call's median time, by mode.
_TIMES = {"prefill": "time_to_first_token", "decode": "time_per_output_token"}


def generation(workload: Workload, model: Model, program: Program, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Time, rate and energy per token, from the metrics of calls and samples; and the size of the state.

    A token is a step of the sequence, whatever it consists of.
    """
    steps = model.sizes(workload.axes)[model.sequence] if workload.mode == "prefill" else 1
    found = {_TIMES[workload.mode]: metrics["latency_p50"]}
    throughput, energy = metrics["throughput"], metrics["energy_per_sample"]
    found["tokens_per_second"] = throughput
    if throughput.value is not None:
        found["tokens_per_second"] = Metric(throughput.value * steps, f"throughput times {steps}: {throughput.source}")
    found["energy_per_token"] = energy
    if energy.value is not None:
        found["energy_per_token"] = Metric(energy.value / steps, f"energy_per_sample over {steps}: {energy.source}")
    if state := program.state_memory():
        found["state_memory"] = state
    return found


def margins(model: Model, output: NDArray[Any]) -> list[float]:
    """The margin of each sequence's next token: its best logit less the second best, over the output's L2 length.

    The output has the shape (batch, tokens), or (batch, steps, tokens), of which the last step counts. If it is not one
    logit for each token that an input can hold, no sequence has a margin.
    """
    vocabularies = {given.high for given in model.inputs.values() if given.draw == "integers"} - {1}
    if output.ndim < 2 or output.shape[-1] not in vocabularies:
        return []
    last = output.reshape(len(output), -1, output.shape[-1])[:, -1]
    second, best = np.partition(last, -2)[:, -2:].T
    length = float(np.linalg.norm(output)) or 1.0
    return [float(f"{margin:.3g}") for margin in (best - second) / length]

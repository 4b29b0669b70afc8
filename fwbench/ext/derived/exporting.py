"""The process in which a derived lane's exporter works: `python -m fwbench.ext.derived.exporting FOLDER`.

It reads `request.json` and `weights.npz` in the folder, and writes `answer.json` and the files in `exported`.
`fwbench.ext.derived.adapter` starts it.
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwbench.errors import UnavailableError
from fwbench.frameworks.faults import chain, faults, first_line, is_out_of_memory
from fwbench.frameworks.torch.networks import (
    called_with,
    load_weights,
    network,
    place_inputs,
    select_output,
    shapes,
)
from fwbench.models import Model, ModelError
from fwbench.models.importing import load
from fwbench.models.inputs import draw
from fwbench.record.workload import Workload

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class _Positional(torch.nn.Module):
    """Wraps a model's module, to take its inputs by position and return only the model's output."""

    def __init__(self, module: torch.nn.Module, model: Model, batch_size: int, names: list[str]) -> None:
        super().__init__()
        self.module, self.model, self.batch_size, self.names = module, model, batch_size, names

    def forward(self, *inputs: Tensor) -> Tensor:
        positional, named = called_with(dict(zip(self.names, inputs, strict=True)))
        return select_output(self.model, self.module(*positional, **named), self.batch_size)


def _answer(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    model = Model.from_json(request["model"])
    module = network(model, request["sizes"])
    answer: dict[str, Any] = {"shapes": shapes(module)}
    if "exporter" not in request:
        return answer
    workload = Workload.from_json(request["workload"])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    with np.load(folder / "weights.npz") as weights:
        load_weights(module, weights)
    batch = draw(model.inputs, workload.batch_size, workload.seed, request["sizes"])
    inputs = place_inputs(model, batch, torch.device("cpu"), torch.float32)
    positional = _Positional(module.eval(), model, workload.batch_size, list(inputs))
    by_name = {f"input_{index}": tensor.contiguous() for index, tensor in enumerate(inputs.values())}
    with faults("the network"), torch.inference_mode():
        positional(*by_name.values())
    target = folder / "exported"
    target.mkdir()
    start = perf_counter()
    try:
        load(request["exporter"])(positional, by_name, target, workload)
    except BaseException as error:
        if is_out_of_memory(error):
            raise
        # Exporters colour their messages.
        first, *causes = dict.fromkeys(_COLOUR.sub("", first_line(one)) for one in chain(error))
        cause = f" ({causes[-1]})" if causes else ""
        raise UnavailableError(f"the network in PyTorch cannot be exported: {first}{cause}") from error
    return {**answer, "seconds": perf_counter() - start}


def main(folder: Path) -> None:
    """Answer the request in a folder."""
    request = json.loads((folder / "request.json").read_text())
    try:
        answer = _answer(folder, request)
    except ModelError as error:
        answer = {"fault": str(error)}
    except UnavailableError as error:
        answer = {"unavailable": str(error)}
    (folder / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

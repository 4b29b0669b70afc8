"""Make `fwbench/models/batch_norm_scale.json`: `python tools/calibrate.py`.

One float64 forward pass of each model's canonical weights (seed 0) over a fixed batch of 16 samples, in inference mode.
Just before a batch normalisation runs, the second moment of its input becomes its scale and its running statistics are
set from that scale as `fwbench.models.weights.draw` would, so every later layer sees what it will see in use.
"""

import json
import math
from pathlib import Path

import torch

from fwbench.frameworks.torch.networks import called_with, load_weights, network, place_inputs, shapes
from fwbench.models import CATALOG, Model, inputs
from fwbench.models import weights as canonical

_BATCH_SIZE = 16


def calibrate(model: Model) -> dict[str, float]:
    """Second moment of the input of each batch normalisation of the model, by the layer's name."""
    module = network(model, model.sizes())
    load_weights(module, canonical.draw(model, shapes(module), seed=0, batch_norm_scale={}))
    module = module.double().eval()
    scales: dict[str, float] = {}
    names: dict[torch.nn.Module, str] = {
        layer: name for name, layer in module.named_modules() if isinstance(layer, torch.nn.BatchNorm2d)
    }

    def before(layer: torch.nn.Module, given: tuple[torch.Tensor]) -> None:
        scale = float(f"{given[0].square().mean().item():.4g}")
        scales[names[layer]] = scale
        layer.get_buffer("running_mean").mul_(math.sqrt(scale))
        layer.get_buffer("running_var").mul_(scale)

    for layer in names:
        layer.register_forward_pre_hook(before)
    drawn = inputs.draw(model.inputs, _BATCH_SIZE, 0, model.sizes())
    positional, named = called_with(place_inputs(model, drawn, torch.device("cpu"), torch.float64))
    with torch.inference_mode():
        module(*positional, **named)
    return scales


if __name__ == "__main__":
    table = {model.name: calibrate(model) for model in CATALOG.values() if model.published}
    path = Path(canonical.__file__).with_name("batch_norm_scale.json")
    path.write_text(json.dumps({name: scales for name, scales in table.items() if scales}, indent=1) + "\n")

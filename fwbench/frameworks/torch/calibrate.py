"""Make `fwbench/models/batch_norm_scale.json`: `python -m fwbench.frameworks.torch.calibrate`.

One float64 forward pass of each model's canonical weights (seed 0) over a fixed batch of 16 samples, in inference mode.
Just before a batch normalisation runs, the second moment of its input becomes its scale and its running statistics are
set from that scale as `fwbench.models.weights.draw` would, so every later layer sees what it will see in use.
"""

import json
import math
from pathlib import Path

import torch

from fwbench.data.synthetic import batch
from fwbench.frameworks.torch.networks import load_weights, network, shapes
from fwbench.models import CATALOG, Model
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

    def before(layer: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        scale = float(f"{inputs[0].square().mean().item():.4g}")
        scales[names[layer]] = scale
        layer.get_buffer("running_mean").mul_(math.sqrt(scale))
        layer.get_buffer("running_var").mul_(scale)

    for layer in names:
        layer.register_forward_pre_hook(before)
    with torch.inference_mode():
        module(torch.from_numpy(batch(model, _BATCH_SIZE, seed=0)).double().permute(0, 3, 1, 2))
    return scales


if __name__ == "__main__":
    table = {model.name: calibrate(model) for model in CATALOG.values() if model.published}
    path = Path(canonical.__file__).with_name("batch_norm_scale.json")
    path.write_text(json.dumps({name: scales for name, scales in table.items() if scales}, indent=1) + "\n")

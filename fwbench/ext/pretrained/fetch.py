"""Fetch torchvision's published weights: `python -m fwbench.ext.pretrained.fetch MODEL ...`.

Takes a checkpoint that torchvision has downloaded before from its cache (`TORCH_HOME`), else downloads it.
"""

import sys

import torchvision

from fwbench.ext.pretrained import stored
from fwbench.frameworks.torch.networks import export_weights, network
from fwbench.models import CATALOG, Model


def fetch(model: Model) -> None:
    """Convert torchvision's newest published weights of the model to a file that every framework reads.

    Raises:
        OSError: the checkpoint is neither in torchvision's cache nor to be downloaded.
        RuntimeError: the checkpoint does not fit the network, or is no checkpoint.
    """
    state = torchvision.models.get_model_weights(model.name).DEFAULT.get_state_dict(progress=False)
    module = network(model, model.sizes())
    module.load_state_dict(state, strict=True)
    stored.save(model, export_weights(module))


def main(names: list[str]) -> str | None:
    """Fetch each model's weights; return one sentence on the first failure, or None."""
    for name in names:
        model = CATALOG.get(name)
        if model is None or not model.published:
            return f"torchvision publishes no weights of {name!r}"
        try:
            fetch(model)
        except Exception as error:  # a network, a disk or an unpickler: each fails in its own way
            first = str(error).strip().partition("\n")[0]
            return f"torchvision's weights of {name} could not be had ({type(error).__name__}: {first})"
        print(f"{name}: {stored.path(model)}")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

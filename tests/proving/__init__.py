"""What proves the suite's own networks to its makers: planted mistakes, float32 results, steps over several devices."""

from fwbench.models import CATALOG

# Those with parameters. Models with a state are left out, as they are proved step by step as well.
MODELS = tuple(name for name, model in CATALOG.items() if model.parameters and not model.state)

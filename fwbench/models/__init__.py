"""The models, described as data. The networks lie with each framework, or in the user's own modules."""

from fwbench.models.catalog import CATALOG
from fwbench.models.importing import ModelError
from fwbench.models.inputs import Input
from fwbench.models.model import Model

__all__ = ["CATALOG", "Input", "Model", "ModelError"]

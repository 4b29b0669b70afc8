"""The catalog: what each model is, as data. Networks themselves lie with each framework."""

from fwbench.models.catalog import CATALOG, Model

__all__ = ["CATALOG", "Model"]

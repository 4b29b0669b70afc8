"""Framework-neutral NumPy batches: every lane sees the same ones in the same order."""

from fwbench.ext.epochs.data.contract import Batch, Data, DataError, Images, Labels, digest
from fwbench.ext.epochs.data.sources import open_data

__all__ = ["Batch", "Data", "DataError", "Images", "Labels", "digest", "open_data"]

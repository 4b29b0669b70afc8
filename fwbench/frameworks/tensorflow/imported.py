"""TensorFlow and Keras as they import themselves where no other framework lies beside them.

Every module of this folder imports them from here.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# What both import if it happens to be installed, and do not need: with JAX, 220 MB that would count as the memory of
# TensorFlow's programs; and scikit-learn, which sets variables of OpenMP for the whole process.
_BESIDE = ("jax", "pandas", "matplotlib", "matplotlib.pyplot", "sklearn")


@contextmanager
def _without(names: tuple[str, ...]) -> Iterator[None]:
    """Let an import of these modules fail, unless they have been imported already."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


# Else what it is built for is told on standard error at every start.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"
with _without(_BESIDE):
    tf: Any = importlib.import_module("tensorflow")
    keras: Any = importlib.import_module("keras")

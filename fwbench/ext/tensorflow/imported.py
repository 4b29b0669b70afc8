"""TensorFlow and Keras, imported as if no other framework were installed.

Every module of this folder imports them from here.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Modules that TensorFlow and Keras import if they are installed, and do not need. JAX takes 220 MB, which would count
# as the memory of TensorFlow's programs, and scikit-learn sets variables of OpenMP for the whole process.
_BESIDE = ("jax", "pandas", "matplotlib", "matplotlib.pyplot", "sklearn")


@contextmanager
def _without(names: tuple[str, ...]) -> Iterator[None]:
    """Let imports of these modules fail, unless they have been imported already."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


# Otherwise TensorFlow reports its build on standard error at every start.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"
with _without(_BESIDE):
    tf: Any = importlib.import_module("tensorflow")
    keras: Any = importlib.import_module("keras")

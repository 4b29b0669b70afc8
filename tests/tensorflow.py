"""TensorFlow's lanes as parameters of tests, which are skipped where it is not installed.

Whoever takes one in a process imports PyTorch first: both bring an LLVM along, and PyTorch's compiler cannot be loaded
after TensorFlow's.
"""

from importlib.util import find_spec

import pytest

from tests.unit.shared import extension

needs_tensorflow = pytest.mark.skipif(
    find_spec("tensorflow") is None or extension("tensorflow") is None,
    reason="TensorFlow is not installed here: install fwbench[tensorflow]; or its extension is not here",
)

TENSORFLOW = pytest.param("tensorflow", marks=needs_tensorflow)
XLA = pytest.param("tensorflow-xla", marks=needs_tensorflow)

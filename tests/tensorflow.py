"""TensorFlow's lanes as parameters of tests, which are skipped where it is not installed.

Whoever takes one in a process imports PyTorch first: both bring an LLVM along, and PyTorch's compiler cannot be loaded
after TensorFlow's.
"""

from importlib.util import find_spec

import pytest

needs_tensorflow = pytest.mark.skipif(
    find_spec("tensorflow") is None, reason="TensorFlow is not installed here: install fwbench[tensorflow]"
)

TENSORFLOW = pytest.param("tensorflow", marks=needs_tensorflow)
XLA = pytest.param("tensorflow-xla", marks=needs_tensorflow)

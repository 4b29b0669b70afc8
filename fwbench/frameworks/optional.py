"""Methods that an adapter's program may have besides the contract's."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray


@runtime_checkable
class Rotating(Protocol):
    """A program whose calls can take several batches in turn, which exposes a network that remembers outputs."""

    def rotate(self, batches: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        """Let the next calls of a forward pass take these batches in turn, the first one first, each in new memory.

        Called between calls, within a session or before it. Compiled code stays.

        Args:
            batches: of the shapes of the build, as `fwbench.models.inputs.draw` draws them.
        """

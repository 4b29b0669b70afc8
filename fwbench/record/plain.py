"""A test of pytest-benchmark that is no workload of fwbench, but takes turns like one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PlainTest:
    """A test with the fixture `benchmark`, as a duet sees it beside workloads.

    Attributes:
        name: pytest's id of it, relative to the project's root.
    """

    name: str

    @property
    def id(self) -> str:
        """Its name in tables and sentences."""
        return self.name

    @property
    def device(self) -> str:
        """The word `none`: a test does not state its device."""
        return "none"

    def fitted(self, unfit: tuple[int, ...]) -> "PlainTest":
        """The test itself: it has no batch that could be halved."""
        return self

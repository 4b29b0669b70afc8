"""What the tests of extensions share with those of the core."""

from tests.unit.conftest import clock, imported, own_lanes, protocol, without_gpu  # noqa: F401 (fixtures)
from tests.unit.faults.conftest import fault, small  # noqa: F401 (fixtures)
from tests.unit.report.conftest import golden, hostile, report, reported  # noqa: F401 (fixtures)

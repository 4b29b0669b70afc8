"""`--fwbench-workers`: the accelerators over which a run is spread."""

import pytest

from fwbench import engines
from fwbench.engines.pool import Pool
from fwbench.gates.options import refuse_idle

OPTION = "--fwbench-workers"


def pool(config: pytest.Config) -> Pool | None:
    """The pool that the options ask for; it ends with pytest.

    Raises:
        pytest.UsageError: the run cannot be spread, or the engine cannot be used; one sentence.
    """
    name = config.getoption("fwbench_workers")
    if name is None:
        return None
    if config.getoption("fwbench_against") is not None:
        raise pytest.UsageError(
            f"{OPTION} cannot work with --fwbench-against: in a duet two processes take turns on one machine. Leave "
            "one of them out."
        )
    devices = config.getoption("fwbench_devices")
    if devices is not None and {number.strip() for number in devices.split(",")} != {"1"}:
        raise pytest.UsageError(
            f"{OPTION} cannot work with --fwbench-devices {devices}: each benchmark has one accelerator of the pool. "
            "Leave one of them out."
        )
    refuse_idle(config, OPTION, "spread")
    spread = Pool(engines.load(name))
    config.add_cleanup(spread.close)
    return spread

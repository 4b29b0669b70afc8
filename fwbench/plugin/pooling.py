"""`--fwbench-workers`: the accelerators over which a run is spread."""

import importlib.util

import pytest

from fwbench.worker.pool import Pool

OPTION = "--fwbench-workers"


def pool(config: pytest.Config) -> Pool | None:
    """The pool that the options ask for; it ends with pytest.

    Raises:
        pytest.UsageError: the run cannot be spread, or Ray is not installed; one sentence.
        UserError: the cluster cannot be used; one sentence.
    """
    if config.getoption("fwbench_workers") is None or hasattr(config, "workerinput"):
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
    for option in ("disable", "skip"):
        if config.getoption(f"benchmark_{option}"):
            raise pytest.UsageError(f"--benchmark-{option} measures nothing that {OPTION} could spread: leave it out.")
    if config.getoption("dist", "no") != "no":
        raise pytest.UsageError(f"{OPTION} cannot work with -n/--dist: it spreads the benchmarks itself; leave out -n.")
    if importlib.util.find_spec("ray") is None:
        raise pytest.UsageError(
            f'{OPTION} ray needs Ray, which is not installed here: `pip install "fwbench[ray]"`, on every node.'
        )
    # Imported only here, as Ray takes a second.
    from fwbench.worker.ray import Ray

    found = Pool(Ray())
    config.add_cleanup(found.close)
    return found

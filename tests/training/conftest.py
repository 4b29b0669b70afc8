"""Both frameworks in this process."""

from tests.one_process import one_process, quickly_compiled  # noqa: F401 (fixtures)


def pytest_xdist_make_scheduler(config, log):
    """Under `-n`, one process has all of a file: what its tests share is computed once."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)

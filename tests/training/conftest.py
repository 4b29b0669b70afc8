"""The frameworks in this process."""

from tests.one_process import nothing_left, one_process, pytest_xdist_make_scheduler, quickly_compiled  # noqa: F401

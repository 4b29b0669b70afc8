"""The frameworks in this process."""

from tests.one_process import (  # noqa: F401
    freed,
    nothing_left,
    one_process,
    pytest_xdist_make_scheduler,
    quickly_compiled,
    two_blocks,
)

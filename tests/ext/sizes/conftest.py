"""The frameworks in this process."""

from tests.one_process import *  # noqa: F403 (fixtures and a hook are for pytest)

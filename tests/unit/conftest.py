"""What the harness's tests share."""

import dataclasses

import pytest

from fwbench.suite.profiles import PROFILES
from tests.unit.fakes import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def protocol():
    """Amounts that a fake clock counts easily; tests change what they are about."""
    return dataclasses.replace(PROFILES["quick"], warmup_iterations=3, warmup_time=0.0, min_rounds=5, max_time=0.0)

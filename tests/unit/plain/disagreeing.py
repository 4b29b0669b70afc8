"""Adapters whose second rank is no copy of the first; here, for the networks' file must not be imported before."""

import os
import sys

from plain_lane import Plain


class OtherVersion(Plain):
    """The second rank has another version of a distribution."""

    def preload(self, lane):
        if os.environ["FWBENCH_RANK"] == "1":
            sys.modules["numpy"].__version__ = "0.1"


class OtherSources(Plain):
    """The second rank finds another file of the network's name."""

    def preload(self, lane):
        if os.environ["FWBENCH_RANK"] == "1":
            sys.path.insert(0, os.environ["OTHER_SOURCES"])


OTHER_VERSION, OTHER_SOURCES = OtherVersion(), OtherSources()

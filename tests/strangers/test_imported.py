"""A network of JAX's whose module imports PyTorch, as a port may that was made from it."""

import json
import sys
import textwrap
from importlib.util import find_spec

import pytest

from tests.unit.shared import ALONE
from tests.unit.suites import FAST

pytestmark = pytest.mark.skipif(not (find_spec("torch") and find_spec("jax")), reason="needs torch and jax")

NETWORK = """
    from flax import nnx


    def Net(rngs):
        return nnx.Linear(4, 2, rngs=rngs)
"""
TESTS = """
    import fwbench

    models = [fwbench.Model(name, jax=f"{name}:Net", inputs=fwbench.normal(4)) for name in ("clean", "ported")]

    @fwbench.benchmark(*models)
    def test_speed(fwbench_measure):
        fwbench_measure()
"""


@pytest.mark.slow
def test_a_stray_import_is_on_the_record_and_beside_the_memory(stranger):
    sources = {"clean": NETWORK, "ported": f"\n    import torch{NETWORK}", "test_mine": TESTS}
    for name, source in sources.items():
        (stranger.path / f"{name}.py").write_text(textwrap.dedent(source))
    asked = ("--benchmark-only", "--benchmark-json=x.json", "--fwbench-threads=1")
    outcome = stranger.run(sys.executable, "-m", "pytest", *ALONE, *FAST, *asked)
    outcome.assert_outcomes(passed=2)
    records = [record["extra_info"] for record in json.loads((stranger.path / "x.json").read_text())["benchmarks"]]
    clean, ported = sorted(records, key=lambda record: record["workload"]["model"])
    assert "also_imported" not in clean["settings"]
    assert ported["settings"]["also_imported"] == ["torch"]
    peaks = [record["metrics"]["host_peak_memory"] for record in (clean, ported)]
    assert ["at_most" in peak for peak in peaks] == [False, True]
    # So much is PyTorch's.
    assert peaks[1]["value"] > peaks[0]["value"] + 2**26
    outcome.stdout.fnmatch_lines(
        [
            "note: jax-ported-inference-b1: the process of jax also imported torch, whose memory is in the host memory "
            "shown, so no lane is said to have the least"
        ]
    )

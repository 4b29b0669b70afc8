"""What docs/evidence/slurm.py needs, where it is not there."""

import os
import sys
from pathlib import Path

from tests.unit.shared import finish

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "slurm.py"


def test_without_slurm_one_sentence_says_what_to_install(tmp_path):
    done = finish(sys.executable, SCRIPT, env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr.startswith("There is no ")
    assert done.stderr.endswith("install Slurm and MUNGE (Debian: apt-get install slurm-wlm munge).\n")
    assert not done.stdout

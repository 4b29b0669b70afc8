"""Run with a model's name and a framework: a full proof of that network in this process."""

import gc
import importlib
import sys

from fwbench.models import CATALOG
from fwbench.parity import store
from fwbench.parity.proof import modes_apart
from fwbench.worker.process import proof
from tests.proving import records
from tests.proving.float32 import SuiteProof, device_at_hand
from tests.proving.records import MUTATIONS, Full


def prove(name: str, candidate: str) -> None:
    """Prove a network, and keep what came of it.

    Raises:
        SystemExit: the networks differ; the sentence says how.
    """
    model = CATALOG[name]
    # Before the proof: whatever is edited meanwhile has not been proved.
    made_with = records.made_with(name, candidate)
    proved = proof.prove(model, candidate, lambda message: _tell(message["stage"]), patient=True)
    store.write(proved, store.SHIPPED)
    if proved.state != "proved":
        raise SystemExit(proved.sentence)
    planted = importlib.import_module(MUTATIONS[candidate])
    rows, errors = [], {}
    for mode in modes_apart(model):
        _tell(f"{mode}: float32")
        rows.append(SuiteProof(model, mode, device_at_hand(), candidate).row())
        gc.collect()
    for mutation in planted.MUTATIONS:
        if mutation.model == name:
            _tell(f"mutations: {mutation.name}")
            errors[mutation.name] = planted.find(mutation)
    records.write(name, Full(candidate, made_with, tuple(rows), errors))


def _tell(stage: str) -> None:
    print(f"  {stage}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    prove(*sys.argv[1:])

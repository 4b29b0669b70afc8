"""Proof that the frameworks compute the same thing; `python -m fwbench.proof` writes `docs/parity.md` from a run."""

"""Proof that the frameworks compute the same thing; `python -m fwbench.parity` writes `docs/parity.md` from a run."""

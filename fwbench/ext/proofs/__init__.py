"""Proofs that the networks of a model's frameworks compute the same thing."""

from fwbench.extensions import Extension

EXTENSION = Extension(
    commands={
        "prove": ("prove that a model's frameworks compute the same thing", "fwbench.ext.proofs.command"),
        "audit": ("prove public ports of networks against their originals", "fwbench.ext.proofs.audit"),
    },
    prove="fwbench.ext.proofs.client:prove",
    survey="fwbench.ext.proofs.surveying:survey",
)

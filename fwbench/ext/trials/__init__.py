"""What the core promises, tried out on this machine: the gate's error rates, and that its numbers can be trusted."""

from fwbench.extensions import Extension

EXTENSION = Extension(
    commands={
        "selftest": (
            "measure the gate itself: false alarms and slowdowns found, on this machine",
            "fwbench.ext.trials.selftest",
        )
    },
    check="fwbench.ext.trials.check:check",
    sending="fwbench.ext.trials.sending:report",
)

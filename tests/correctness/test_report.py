"""The page of errors says what a run of the proofs found."""

from fwbench.parity.proof import BOUNDS, Rounding
from fwbench.parity.report import Row, render

SAMPLE = Row(
    "resnet50",
    "eval",
    dict.fromkeys(BOUNDS, 3.21e-15) | {"loss": 0.0, "statistics": None},
    Rounding(own=1e-7, bound=5e-7, error=2e-7),
    Rounding(own=1e-5, bound=5e-5, error=3e-5),
    torch_compile=4e-8,
    jit=6e-8,
)


def tables(page):
    """Each table's rows as lists of cells, heading first and without the rule below it."""
    blocks = [block.splitlines() for block in page.split("\n\n") if block.startswith("|")]
    rows = [[[cell.strip() for cell in line.strip("|").split("|")] for line in block] for block in blocks]
    return [[heading, *body] for heading, _, *body in rows]


def test_rendering():
    float64, float32, compiled = tables(render([SAMPLE], {"torch": "2.15.0", "jax": "0.10.2"}, "cpu"))
    assert float64 == [
        ["model", "mode", "logits", "loss", "every gradient", "running statistics", "5 SGD steps", "5 Adam steps"],
        ["*bound*", "", "*1e-10*", "*1e-10*", "*1e-08*", "*1e-10*", "*1e-07*", "*1e-07*"],
        ["resnet50", "eval", "3.2e-15", "0", "3.2e-15", "-", "3.2e-15", "3.2e-15"],
    ]
    assert float32[1] == ["resnet50", "eval", "1.0e-07", "2.0e-07", "5.0e-07", "1.0e-05", "3.0e-05", "5.0e-05"]
    assert compiled[1] == ["resnet50", "eval", "4.0e-08", "6.0e-08", "5.0e-07"]

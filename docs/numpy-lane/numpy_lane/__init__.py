"""A NumPy lane for fwbench, with a network for the suite's MLP."""

from fwbench.record.lanes import Lane

LANE = Lane(
    name="numpy",
    framework="numpy",
    title="NumPy",
    adapter="numpy_lane.adapter:FRAMEWORK",
    distributions=("numpy",),
    # As many threads as every other lane has; workers otherwise keep NumPy at one.
    environment={"OPENBLAS_NUM_THREADS": "{threads}"},
    parity="numpy_lane.parity:NumPySide",
    networks={"mlp": "numpy_lane.mlp:MLP"},
)

"""What the program that was timed computes: read back when all timing is over, and folded into sketches.

    inference    output of the last call                        then restart with moved weights: output
    training     restart: loss, gradients, statistics, loss     then restart with moved weights: the same

The second run shows how far rounding can carry a right program: every weight moves by some rounding units, and random
layers draw other numbers. What moves far by that cannot be compared closely; what hardly moves must agree closely.
"""

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.contract import Program
from fwbench.models.weights import Weights, is_statistic
from fwbench.record.sketch import STEPS, UNIT, Sketch

Array = NDArray[Any]

# Slots of an output, and of each group of losses, gradients or statistics; and the largest number of groups of each
# quantity. A record grows by less than 8 KiB with these.
_WIDE, _NARROW = 256, 3
_GROUPS = {"output": 1, "losses": 2, "gradients": 192, "statistics": 48}
# Slots in which movements are measured before they are folded to fewer slots: a multiple of both counts.
_FINE = 768
# Numbers that get their signs at once.
_CHUNK = _FINE << 12

# Draws whose first losses are averaged if a training step is random.
DRAWS = 8
# A training step may be random if a loss moves by a larger share than this.
_SUSPICIOUS = 2.0**-16


def of_inference(program: Program, precision: str) -> dict[str, Any]:
    """Sketch the output of the last call.

    Args:
        program: after a call; its weights are others afterwards.
        precision: of the workload.

    Returns:
        `output`, a sketch as JSON.
    """
    output = {"output": program.output()}
    try:
        program.restart(_moved(program.weights(), precision), draw=1)
    except NotImplementedError:
        return _sketches(output, [])
    program.step()
    program.wait()
    return _sketches(output, [_all_folded({"output": program.output()})])


def of_training(
    program: Program, weights: Weights, precision: str, mean: Callable[[float], float] = float
) -> dict[str, Any]:
    """Sketch the first two training steps from these weights.

    Args:
        program: compiled; its state is another one afterwards.
        weights: that it was built with.
        precision: of the workload.
        mean: of a value over all ranks.

    Returns:
        `losses`, and where there are any `gradients` and `statistics`: sketches as JSON. Where the first loss is
        random, `draws`: that of several draws at the same weights.

    Raises:
        NotImplementedError: the lane cannot start again.
    """

    def first_loss(weights: Weights, draw: int) -> float:
        program.restart(weights, draw=draw)
        program.step()
        program.wait()
        return mean(program.output().item())

    def reached() -> dict[str, Any]:
        """What the first step has computed besides its loss."""
        running = any(map(is_statistic, weights))
        after = {name: array for name, array in program.weights().items() if is_statistic(name)} if running else {}
        return {"gradients": program.gradients(), "statistics": after}

    def run(weights: Weights, draw: int) -> dict[str, Any]:
        losses = {"the first step": np.array([first_loss(weights, draw)])}
        results = reached()
        program.step()
        program.wait()
        losses["the second step"] = np.array([mean(program.output().item())])
        return {"losses": losses, **results}

    steps = run(weights, 0)
    moved = run(_moved(weights, precision), 1)
    elsewhere, draws = [_all_folded(moved)], []
    first = float(steps["losses"]["the first step"][0])
    if any(abs(moved["losses"][name] - loss) > _SUSPICIOUS * abs(first) for name, loss in steps["losses"].items()):
        draws = [first, first_loss(weights, 1)]
        if abs(draws[1] - first) <= 4 * UNIT["fp32"] * abs(first):
            draws = []
    for draw in range(2, DRAWS) if draws else ():
        draws.append(first_loss(weights, draw))
        # Two draws may leave a layer unchanged by chance; six more hardly ever do.
        elsewhere.append(_all_folded(reached()))
    return _sketches(steps, elsewhere) | ({"draws": draws} if draws else {})


def _moved(weights: Mapping[str, Array], precision: str) -> Weights:
    """Make each weight some rounding units larger or smaller, by the same choice in every lane."""
    factors = 1 + np.float32(STEPS[precision] * UNIT[precision]) * _signs()[:_CHUNK]
    moved = {}
    for name, array in weights.items():
        repeated = np.resize(factors, array.size) if array.size > len(factors) else factors[: array.size]
        moved[name] = array * repeated.reshape(array.shape)
    return moved


@dataclass(frozen=True)
class _Folded:
    """Groups of arrays, each in `_FINE` slots."""

    names: tuple[str, ...]
    slots: NDArray[np.float64]
    norms: NDArray[np.float64]


# A wrong program may have computed infinities.
@np.errstate(invalid="ignore", over="ignore")
def _all_folded(results: Mapping[str, Any]) -> dict[str, _Folded]:
    """Fold each result that exists: an array, or arrays by name."""
    return {name: _folded(name, result) for name, result in results.items() if result is not None and len(result)}


@np.errstate(invalid="ignore")
def _sketches(results: Mapping[str, Any], elsewhere: Sequence[Mapping[str, _Folded]]) -> dict[str, Any]:
    """A sketch of each result, as JSON.

    Args:
        elsewhere: the same of other runs, of which the furthest says how far each group moves.
    """
    sketches = {}
    for name, folded in _all_folded(results).items():
        distances = [np.linalg.norm(folded.slots - moved[name].slots, axis=1) for moved in elsewhere if name in moved]
        distance = np.max(distances, axis=0) if distances else np.full(len(folded.names), np.nan)
        width = _NARROW if isinstance(results[name], Mapping) else _WIDE
        slots = folded.slots.reshape(len(folded.names), -1, width).sum(1)
        if not isinstance(results[name], Mapping):
            # Further slots are empty.
            slots = slots[:, : results[name].size]
        short = (array.astype(np.float32) for array in (slots, folded.norms, distance))
        sketches[name] = Sketch(folded.names, *short).to_json()
    return sketches


def _folded(quantity: str, result: Mapping[str, Array] | Array) -> _Folded:
    arrays = result if isinstance(result, Mapping) else {quantity: result}
    parts = [list(group) for group in np.array_split(sorted(arrays), min(len(arrays), _GROUPS[quantity]))]
    names = tuple(group[0] if len(group) == 1 else f"{group[0]} ... {group[-1]}" for group in parts)
    # Slots add up: the sum of two groups' slots is that of both groups together.
    slots = np.array([sum(_slots(name, arrays[name]) for name in group) for group in parts])
    squares = [sum(_square(arrays[name].ravel()) for name in group) for group in parts]
    return _Folded(names, slots, np.sqrt(squares))


def _square(flat: Array) -> float:
    """The sum of squares, in float64."""
    return float(np.einsum("i,i->", flat, flat, dtype=np.float64))


def _slots(name: str, array: Array) -> NDArray[np.float64]:
    """One array's numbers with random signs, summed slot by slot."""
    flat = array.ravel()
    slots = np.zeros(_FINE)
    # Each chunk of each array has another section of the signs.
    sections = np.random.default_rng([zlib.crc32(name.encode()), flat.size])
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        first = sections.integers(_CHUNK)
        signed = part * _signs()[first : first + part.size]
        whole = part.size // _FINE * _FINE
        slots += signed[:whole].reshape(-1, _FINE).sum(0, dtype=np.float64)
        slots[: part.size - whole] += signed[whole:]
    return slots


@functools.cache
def _signs() -> NDArray[np.float32]:
    """Random signs for two chunks."""
    return np.random.default_rng(0).choice(np.array([-1, 1], np.float32), 2 * _CHUNK)

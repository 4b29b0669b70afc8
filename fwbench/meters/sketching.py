"""Sketches of the results of the timed program, read back when all timing is over.

    inference    output before and after all timing, of one batch;      restart with moved weights; step: output
    training     restart; step: loss, gradients, updates, statistics;   restart with moved weights; step: the same
                 if a random layer may have caused the differences: up to seven more draws at the first weights

An update is the change of a weight in a step. The second run shows how far rounding can change a correct program's
results: every weight moves by some rounding units, and random layers draw other numbers. A result that changes much
gets a wide bound, and one that changes little a narrow one.

The first run's results are also compared with those of float64, if the caller has them (`errors`).
"""

import functools
import json
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.contract import Program
from fwbench.models.weights import Lazy, Weights, is_statistic
from fwbench.record.sketch import STEPS, UNIT, Sketch
from fwbench.threads import on_all_cpus

Array = NDArray[Any]

# Slots of an output or a loss, and of each group of gradients, updates or statistics; and the largest number of groups
# of each quantity. With these a record grows by less than 8 KiB.
_WIDE, _NARROW = 256, 3
_GROUPS = {
    "output": 1,
    "loss": 1,
    "gradients": 160,
    "updates": 40,
    "statistics": 48,
    "metrics": 48,
    "moments": 40,
    "state": 24,
}
# Slots in which two runs are compared. A sketch sums them to the fewer slots above, so both of these counts divide it.
_FINE = 768
# Count of numbers that get their signs at once.
_CHUNK = _FINE << 12

# A function that returns the folded results of float64.
Exact = Callable[[], Mapping[str, "Folded"]]

# Draws whose first losses are averaged if a training step is random.
DRAWS = 8
# A training step may be random if its loss or one of its gradients changes by a larger share than this. Two draws may
# have almost the same loss by chance; but a random layer changes some gradient by a tenth and more.
_LOSS_CHANGE, _GRADIENT_CHANGE = 2.0**-16, 2.0**-6


def folded_output(program: Program, samples: int | None = None) -> dict[str, "Folded"]:
    """Fold the output of the last call, or its first samples only."""
    return _all_folded({"output": program.output()[... if samples is None else slice(samples)]}, lengths=True)


def folded_step(program: Program, weights: Weights) -> dict[str, "Folded"]:
    """Make the first training step from these weights, and fold its loss and its gradients."""
    program.restart(weights)
    program.call_and_wait()
    return _all_folded({"loss": program.output().ravel(), "gradients": program.gradients()}, lengths=True)


def of_inference(
    program: Program,
    precision: str,
    samples: int | None = None,
    before: dict[str, "Folded"] | None = None,
    exact: Exact | None = None,
) -> dict[str, Any]:
    """Sketch the output of the last call. This changes the program's weights.

    Args:
        samples: as in `folded_output`.
        before: the output of the same batch before anything was timed.
        exact: returns the folded results of float64; None: they are unknown.

    Returns:
        `output`, a sketch as JSON; `before`, another one, if the output differs from the argument `before`; and
        `errors` if `exact` is given.
    """
    output, others = folded_output(program, samples), []
    # Without weights nothing can show whether outputs follow them.
    if weights := program.weights():
        try:
            program.restart(moved_weights(weights, precision), draw=1)
        except NotImplementedError:
            pass
        else:
            program.call_and_wait()
            others = [folded_output(program, samples)]
    told = sketches_of(output, others)
    if before and not np.array_equal(before["output"].slots, output["output"].slots):
        told["before"] = sketches_of(before, others)["output"]
    return told | ({"errors": errors(output, exact())} if exact else {})


def of_training(
    program: Program,
    weights: Weights,
    precision: str,
    mean: Callable[[float], float] = float,
    exact: Exact | None = None,
) -> dict[str, Any]:
    """Sketch a compiled program's first training step from these weights of its build. This changes its state.

    Args:
        mean: returns the mean of a value over all ranks.
        exact: as in `of_inference`.

    Returns:
        Sketches as JSON: `loss`, `updates`, and, if there are any, `gradients` and `statistics`. If the loss is random,
        also `draws`, the losses of several draws at the same weights; else `errors` if `exact` is given.

    Raises:
        NotImplementedError: the lane cannot restart.
    """
    trained = [name for name in weights if not is_statistic(name)]
    moved = moved_weights(weights, precision)

    def step(begin: Mapping[str, Array], draw: int) -> float:
        """Make the first step from these weights with this draw of random numbers; return its loss."""
        program.restart(begin, draw=draw)
        program.call_and_wait()
        return mean(program.output().item())

    def results(loss: float, begin: Mapping[str, Array], *, lengths: bool = False) -> dict[str, Folded]:
        """Fold what the step just made from these weights has computed."""
        after = program.weights()
        updates = Lazy(trained, lambda name: after[name] - begin[name])
        statistics = {name: after[name] for name in weights if is_statistic(name)}
        arrays = {"gradients": program.gradients(), "updates": updates, "statistics": statistics}
        return _all_folded({"loss": np.array([loss]), **arrays}, lengths=lengths)

    first = step(weights, 0)
    start = results(first, weights, lengths=True)
    second = step(moved, 1)
    other = results(second, moved)
    others, draws = [other], []
    changes = [abs(second - first) > _LOSS_CHANGE * abs(first)]
    if "gradients" in start:
        changes.extend(_distances(start, other, "gradients") > _GRADIENT_CHANGE * start["gradients"].norms)
    if any(changes):
        again = step(weights, 1)
        draws = [first, again] if abs(again - first) > 4 * UNIT["fp32"] * abs(first) else []
    for draw in range(2, DRAWS) if draws else ():
        draws.append(step(weights, draw))
        # Two draws may leave a layer unchanged by chance; six more hardly ever do.
        others.append(results(draws[-1], weights))
    told = sketches_of(start, others)
    if draws:
        told["draws"] = draws
    elif exact:
        told["errors"] = errors(start, exact())
    return told


# A program in float64 may have computed infinities, too.
@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def errors(folded: Mapping[str, "Folded"], exact: Mapping[str, "Folded"]) -> dict[str, float]:
    """The relative L2 distance of each quantity from its exact value, over all numbers of the quantity together.

    A quantity with at most `_FINE` numbers has its exact distance. A larger one has an estimate, whose standard
    deviation is at most `1 / sqrt(2 * _FINE)`, 2.6 % of it. Quantities that both have, with the same names and sizes of
    arrays, are compared; NaN or infinity if a number is not finite, or the exact quantity is zero.
    """
    alike = (
        (name, one, other)
        for name, one in folded.items()
        if (other := exact.get(name)) and (one.names, one.size) == (other.names, other.size)
    )
    return {
        name: float(np.linalg.norm(one.slots - other.slots) / np.linalg.norm(other.norms)) for name, one, other in alike
    }


def moved_weights(weights: Mapping[str, Array], precision: str) -> Mapping[str, Array]:
    """Make each weight some rounding units larger or smaller, by the same choice in every lane."""
    largest = max((array.size for array in weights.values()), default=0)
    factors = 1 + np.float32(STEPS[precision] * UNIT[precision]) * _signs(0, min(largest, _CHUNK))

    def moved(name: str) -> Array:
        array = weights[name]
        repeated = np.resize(factors, array.size) if array.size > len(factors) else factors[: array.size]
        return array * repeated.reshape(array.shape)

    return Lazy(weights, moved)


@dataclass(frozen=True)
class Folded:
    """Groups of arrays, each in `_FINE` slots, and the length of each group; NaN if lengths were not asked for.

    The `size` is the count of numbers of a single array, and None for arrays by name.
    """

    names: tuple[str, ...]
    slots: NDArray[np.float64]
    norms: NDArray[np.float64]
    size: int | None


def write(path: str, results: Mapping[str, Folded]) -> None:
    """Write folded results to a file in NumPy's format."""
    about = {name: [folded.names, folded.size] for name, folded in results.items()}
    slots = {f"slots {name}": folded.slots for name, folded in results.items()}
    norms = {f"norms {name}": folded.norms for name, folded in results.items()}
    np.savez(path, about=np.array(json.dumps(about)), **slots, **norms)  # type: ignore[arg-type, unused-ignore]


def read(path: str) -> dict[str, Folded]:
    """Read folded results from a file of `write`'s."""
    with np.load(path) as stored:
        about = json.loads(stored["about"].item())
        return {
            name: Folded(tuple(names), stored[f"slots {name}"], stored[f"norms {name}"], size)
            for name, (names, size) in about.items()
        }


# A wrong program may have computed infinities.
@np.errstate(invalid="ignore", over="ignore")
def _all_folded(results: Mapping[str, Any], *, lengths: bool = False) -> dict[str, "Folded"]:
    """Fold each result that exists: an array, or arrays by name."""
    existing = {name: result for name, result in results.items() if result is not None and len(result)}
    return {name: fold(name, result, lengths) for name, result in existing.items()}


@np.errstate(invalid="ignore", over="ignore")
def sketches_of(results: Mapping[str, Folded], others: Sequence[Mapping[str, Folded]]) -> dict[str, Any]:
    """A sketch of each result, as JSON; a group's movement is its largest distance to any other run's result."""
    sketches = {}
    for name, folded in results.items():
        distances = [_distances(results, other, name) for other in others if name in other]
        distance = np.max(distances, axis=0) if distances else np.full(len(folded.names), np.nan)
        slots = folded.slots.reshape(len(folded.names), -1, _NARROW if folded.size is None else _WIDE).sum(1)
        # A single array may have fewer numbers than slots.
        short = (array.astype(np.float32) for array in (slots[:, : folded.size], folded.norms, distance))
        sketches[name] = Sketch(folded.names, *short).to_json()
    return sketches


@np.errstate(invalid="ignore")
def _distances(one: Mapping[str, Folded], other: Mapping[str, Folded], quantity: str) -> NDArray[np.float64]:
    """The distance of each group of a quantity from the same group of another run."""
    distances: NDArray[np.float64] = np.linalg.norm(one[quantity].slots - other[quantity].slots, axis=1)
    return distances


def fold(quantity: str, result: Mapping[str, Array] | Array, lengths: bool) -> Folded:
    arrays, size = (result, None) if isinstance(result, Mapping) else ({quantity: result}, result.size)
    parts = [list(group) for group in np.array_split(sorted(arrays), min(len(arrays), _GROUPS[quantity]))]
    names = tuple(group[0] if len(group) == 1 else f"{group[0]} ... {group[-1]}" for group in parts)

    # `np.errstate` holds for one thread.
    @np.errstate(invalid="ignore", over="ignore")
    def folded(name: str) -> tuple[NDArray[np.float64], float]:
        array = arrays[name].ravel()
        square = float(np.einsum("i,i->", array, array, dtype=np.float64)) if lengths else np.nan
        return _slots(name, array), square

    # Slots and squares add up: those of two groups together are the sum of each one's.
    slots, squares = np.zeros((len(parts), _FINE)), np.zeros(len(parts))
    by_name = dict(zip(arrays, on_all_cpus(folded, arrays), strict=True))
    for number, group in enumerate(parts):
        for name in group:
            slots[number] += by_name[name][0]
            squares[number] += by_name[name][1]
    return Folded(names, slots, np.sqrt(squares), size)


def _slots(name: str, flat: Array) -> NDArray[np.float64]:
    """An array's numbers with random signs, summed slot by slot."""
    slots = np.zeros(_FINE)
    # Each chunk of each array has another section of the signs.
    sections = np.random.default_rng([zlib.crc32(name.encode()), flat.size])
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        first = int(sections.integers(_CHUNK))
        signed = part * _signs(first, part.size)
        whole = part.size // _FINE * _FINE
        slots += signed[:whole].reshape(-1, _FINE).sum(0, dtype=np.float64)
        slots[: part.size - whole] += signed[whole:]
    return slots


def _signs(first: int, count: int) -> NDArray[np.float32]:
    """`count` random signs from the position `first` of a fixed sequence of two chunks."""
    if count >= _CHUNK >> 4:
        with _MAKING_SIGNS:
            return _all_signs()[first : first + count]
    generator = np.random.PCG64(0).advance(first // 2)
    return _signs_of(generator.random_raw(count // 2 + 1))[first % 2 :][:count]


# Only one thread makes the sequence, of tens of megabytes.
_MAKING_SIGNS = threading.Lock()


@functools.cache
def _all_signs() -> NDArray[np.float32]:
    return _signs_of(np.random.PCG64(0).random_raw(_CHUNK))


def free_signs() -> None:
    """Free the sequence of signs, which would count as memory of a later step. It is made again when it is needed."""
    _all_signs.cache_clear()


def _signs_of(numbers: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Two signs from each number: those of `default_rng(0).choice([-1, 1])`, in a sixth of the time."""
    return -np.copysign(np.float32(1), numbers.view(np.float32))

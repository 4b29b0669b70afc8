"""Attention in every usual convention of splitting, rotating, scaling and masking heads and of hiding keys."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from fwbench.ext.proofs.where.arrays import distance
from fwbench.ext.proofs.where.calls import Array

# Aspects of a computation: objects by verb. Two networks may differ in each.
Aspects = dict[str, str]

# True for the keys that are attended to.
Mask = NDArray[np.bool_]

# A convention is tried on this many queries of the first sample. If it is within this distance there, it is tried on
# all queries.
_QUERIES, _NEAR = 4, 1e-6

# The most heads that are tried: an array split into many small heads takes longest.
_HEADS = 64

# The value of masked logits. It is finite, so that a query without any key attends to all keys equally.
_LOWEST = float(np.finfo(np.float64).min) / 4

# The keys that a query attends to, as a function of the number of positions by which they are ahead of it.
_MASKS: dict[str, Callable[[NDArray[np.int_]], Mask]] = {
    "to all positions": lambda ahead: ahead == ahead,
    "to no later position": lambda ahead: ahead <= 0,
    "to earlier positions alone": lambda ahead: ahead < 0,
    "to the next position and all before it": lambda ahead: ahead <= 1,
    "to no earlier position": lambda ahead: ahead >= 0,
}

_BASES = (1e2, 1e3, 1e4, 1e5, 5e5, 1e6)


def attention(agreed: Mapping[str, Array], value: Array) -> Iterator[tuple[Aspects, Array]]:
    """The results of attention on its projections, in each convention that comes near the value.

    If none does, try samples that hide keys from all their queries, and then projections in another order.

    Args:
        agreed: queries, keys and values, or one array that holds all three: (batch, length, ...).
        value: the input of the next projection, (batch, length, ...).
    """
    arrays = list(agreed.values())
    if value.ndim < 3 or any(array.ndim < 3 or array.shape[:2] != value.shape[:2] for array in arrays):
        return
    if len(arrays) == 3 or (len(arrays) == 1 and arrays[0].size == 3 * value.size):
        for orders, attended in ((slice(1), _attending), (slice(1), _hiding), (slice(1, None), _attending)):
            tried = (
                (aspects, array.reshape(value.shape)) for aspects, array in attended(agreed, _joint(value), orders)
            )
            if near := [(aspects, array) for aspects, array in tried if distance(array, value) <= _NEAR]:
                yield from near
                return


def _attending(agreed: Mapping[str, Array], context: Array, orders: slice) -> Iterator[tuple[Aspects, Array]]:
    some = np.unique(np.linspace(0, context.shape[1] - 1, _QUERIES).astype(int))
    for aspects, q, k, v, allowed in _conventions(agreed, context.shape[2], orders, tuple(_MASKS)):
        if distance(_attended(q[:1, :, some], k[:1], v[:1], allowed[some]), context[:1, some]) <= _NEAR:
            yield {**aspects, "hides": "no key"}, _attended(q, k, v, allowed)


def _hiding(agreed: Mapping[str, Array], context: Array, orders: slice) -> Iterator[tuple[Aspects, Array]]:
    """Infer from the value the keys that each sample hides."""
    length, width = context.shape[1:]
    # The last query attends to all keys. Each query gives an equation for every channel, with the keys as unknowns.
    some = np.arange(length)[-math.ceil(2 * length / width) :]
    for aspects, q, k, v, allowed in _conventions(agreed, width, orders, tuple(_MASKS)[:2]):
        samples = [(*arrays, allowed[some]) for arrays in zip(q[:, :, some], k, v, context[:, some], strict=True)]
        seen = _seen(*samples[0]) & allowed[some]
        if distance(_attended(q[:1, :, some], k[:1], v[:1], seen), context[:1, some]) <= _NEAR:
            keys = np.stack([_seen(*sample) for sample in samples])
            hidden = [f"{np.flatnonzero(~each).tolist()} of sample {number}" for number, each in enumerate(keys)]
            words = ", ".join(f"keys {each}" for each in hidden if not each.startswith("[]"))
            yield {**aspects, "hides": words or "no key"}, _attended(q, k, v, allowed & keys[:, None, None])


def _joint(array: Array) -> Array:
    """An array in shape (batch, length, width)."""
    return array.reshape(*array.shape[:2], -1)


def _conventions(
    agreed: Mapping[str, Array], width: int, orders: slice, masks: tuple[str, ...]
) -> Iterator[tuple[Aspects, Array, Array, Array, Mask]]:
    """Scaled queries, keys and values, each (batch, heads, length, size), and the keys that each query attends to."""
    for split, q, k, v in _heads(agreed, width, orders):
        length = q.shape[2]
        ahead = np.arange(length) - np.arange(length)[:, None]
        for rotation, (turned, keys) in _rotations(q, k).items():
            for (scale, words), mask in itertools.product(_scales(q).items(), masks):
                rest = {"rotates": rotation, "scales": f"by {scale:.6g} ({words})", "attends": mask}
                yield {"computes": "attention", **split, **rest}, turned * scale, keys, v, _MASKS[mask](ahead)


def _heads(agreed: Mapping[str, Array], width: int, orders: slice) -> Iterator[tuple[Aspects, Array, Array, Array]]:
    """Queries, keys and values for each split into heads and each order; shared keys and values are repeated."""
    for split, parts in _splits(agreed, width):
        for names in list(itertools.permutations(parts))[orders]:
            q, k, v = (parts[name].swapaxes(1, 2) for name in names)
            shared, rest = divmod(q.shape[1], k.shape[1])
            if q.shape[1] * q.shape[3] != width or v.shape != k.shape or rest:
                continue
            aspects = {**split, "takes": f"{', '.join(names)} as queries, keys, values"}
            if shared == 1:
                yield aspects, q, k, v
            else:
                near, turn = {"shares": "keys between neighbouring heads"}, {"shares": "keys between heads in turn"}
                yield aspects | near, q, np.repeat(k, shared, 1), np.repeat(v, shared, 1)
                yield aspects | turn, q, np.tile(k, (1, shared, 1, 1)), np.tile(v, (1, shared, 1, 1))


def _splits(agreed: Mapping[str, Array], width: int) -> Iterator[tuple[Aspects, dict[str, Array]]]:
    """Three arrays (batch, length, heads, size) for each size of a head and, if one array holds all, each layout."""
    arrays = {name: _joint(array) for name, array in agreed.items()}
    common = width if len(arrays) == 1 else math.gcd(*(array.shape[-1] for array in arrays.values()))
    for size in range(2, common + 1):
        heads = width // size
        if common % size or heads > _HEADS:
            continue
        aspects = {"has": f"{heads} head{'s' if heads > 1 else ''}"}
        if len(arrays) == 3:
            yield aspects, {name: array.reshape(*array.shape[:2], -1, size) for name, array in arrays.items()}
            continue
        ((name, array),) = arrays.items()
        shapes = {"3, heads, size": (3, heads, size), "heads, 3, size": (heads, 3, size)}
        shapes["heads, size, 3"] = (heads, size, 3)
        for axis, (layout, shape) in enumerate(shapes.items(), start=2):
            parts = np.moveaxis(array.reshape(*array.shape[:2], *shape), axis, 0)
            labels = ("its first part", "its second", "its third")
            yield {**aspects, "splits": f"{name} into ({layout})"}, dict(zip(labels, parts, strict=True))


def _rotations(q: Array, k: Array) -> dict[str, tuple[Array, Array]]:
    """Queries and keys by their rotary position embedding (Su et al. 2021, arXiv:2104.09864, section 3.2.2)."""
    length, size = q.shape[2:]
    rotations = {"nothing": (q, k)}
    # With two coordinates, all bases give the same angle.
    if size % 2 == 0 and size > 2:
        for base in _BASES:
            turn = np.exp(1j * np.arange(length)[:, None] * base ** (-np.arange(0, size, 2) / size))
            for pairs, shape in (("interleaved pairs", (-1, 2)), ("the two halves", (2, -1))):
                rotations[f"{pairs} to base {base:g}"] = (_turned(q, turn, shape), _turned(k, turn, shape))
    return rotations


def _turned(array: Array, turn: Array, shape: tuple[int, int]) -> Array:
    """Rotate pairs of coordinates. This changes their order, which products of queries and keys ignore."""
    one, other = np.moveaxis(array.reshape(*array.shape[:-1], *shape), shape.index(2) - 2, 0)
    turned = (one + 1j * other) * turn
    return np.concatenate([turned.real, turned.imag], -1)


def _scales(q: Array) -> dict[float, str]:
    """Factors of the logits, each with its name in words; equal factors join their names."""
    heads, length, size = q.shape[1:]
    sizes = {"a head's size": size, "all heads' size": heads * size, "heads": heads, "positions": length}
    factors = {
        "no scale": 1.0,
        **{f"1 over the root of {name}": number**-0.5 for name, number in sizes.items() if number > 1},
        "1 over a head's size": 1 / size,
        "the root of a head's size": size**0.5,
    }
    scales: dict[float, str] = {}
    for words, factor in factors.items():
        scales[factor] = " or ".join(filter(None, [scales.get(factor), words]))
    return scales


def _weights(q: Array, k: Array, allowed: Mask) -> Array:
    """The softmax of masked logits."""
    logits = np.where(allowed, q @ k.swapaxes(-1, -2), _LOWEST)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _attended(q: Array, k: Array, v: Array, allowed: Mask) -> Array:
    """The context (batch, queries, width)."""
    return _joint((_weights(q, k, allowed) @ v).swapaxes(1, 2))


def _seen(q: Array, k: Array, v: Array, context: Array, allowed: Mask) -> Mask:
    """The keys (length,) of one sample that its context (queries, width) is made of.

    A context c is the mean of the seen values v_j with weights w_j. So the sum of s_j w_j (v_j - c) is 0, where s_j is
    1 if key j is seen, else 0: s spans the null space of these equations, over all queries and heads.
    """
    parts = context.reshape(len(context), len(q), -1).swapaxes(0, 1)
    terms = _weights(q, k, allowed)[..., None] * (v[:, None] - parts[:, :, None])
    rows = np.moveaxis(terms, 2, -1).reshape(-1, k.shape[1])
    square = rows.T @ rows
    # One step of inverse iteration from a vector that is not orthogonal to s.
    shift = np.trace(square) * np.finfo(np.float64).eps + np.finfo(np.float64).tiny
    shares = np.linalg.solve(square + shift * np.eye(len(square)), np.ones(len(square)))
    seen: Mask = shares > np.max(shares) / 2
    return seen

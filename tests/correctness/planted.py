"""Mistakes in six small ports: the place at which each makes two networks part, and the cause that numbers show.

`docs/evidence/causes.py` writes what a proof says of each, and `test_causes.py` tests it.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import fwbench
from fwbench.ext.proofs.case import Case, Mode, side
from fwbench.ext.proofs.where.place import Side, sentence
from tests.correctness.planted_networks import TWINS

# The bound of a proof's outputs.
BOUND = 1e-10


@dataclass(frozen=True)
class Planted:
    """A mistake in a port.

    Attributes:
        replacing: what stands in the place of which code of the port.
        place: where a proof says that the two networks part.
        cause: what it then says of the cause; empty if numbers cannot show it.
    """

    network: str
    name: str
    replacing: tuple[str, str]
    place: str
    cause: str


_STEM = "after `stem.bn`, the last module with weights in `stem`"
_FUSED, _SEPARATE = "between `attn.qkv` and `attn.proj`", "between `q`, `k`, `v` and `proj`"
_SCALED = "scales by 0.353553 (1 over the root of a head's size)"

# By network and place: a mistake's name, what is replaced in the port by what, and the cause: what torch and jax do
# there, or a sentence, or nothing.
_TABLE = {
    "convolutional": {
        "at `stem.conv`": [
            (
                "SAME padding at stride 2",
                "padding=1",
                'padding="SAME"',
                "SAME in jax pads less above and to the left at stride 2 than padding in numbers does",
            ),
        ],
        "at `stem.bn`": [
            ("epsilon 1e-3", "epsilon=1e-5", "epsilon=1e-3", "Their epsilon differs: 1e-05 in torch and 0.001 in jax"),
        ],
        _STEM: [
            (
                "clip above 0.75",
                "jax.nn.relu(self.bn(self.conv(x)))",
                "jnp.clip(self.bn(self.conv(x)), 0, 0.75)",
                "There jax alone clips above 0.75",
            ),
            (
                "no ReLU after a block",
                "jax.nn.relu(self.bn(self.conv(x)))",
                "self.bn(self.conv(x))",
                "computes ReLU",
                "no activation",
            ),
        ],
        "between `body` and `head`": [
            ("no residual", "x = x + self.body", "x = self.body"),
        ],
    },
    "causal attention": {
        _FUSED: [
            ("no scale", "logits = q @ k.mT / 8**0.5", "logits = q @ k.mT", _SCALED, "by 1 (no scale)"),
            ("scale by all heads' size", "8**0.5", "16**0.5", _SCALED, "by 0.25 (1 over the root of all heads' size)"),
            ("scale applied twice", "/ 8**0.5", "/ 8", _SCALED, "by 0.125 (1 over a head's size)"),
            (
                "no causal mask",
                "jnp.where(mask, logits, -1e9)",
                "logits",
                "attends to no later position",
                "to all positions",
            ),
            (
                "causal mask off by one",
                "jnp.ones((6, 6), bool))",
                "jnp.ones((6, 6), bool), 1)",
                "attends to no later position",
                "to the next position and all before it",
            ),
            (
                "causal mask without the position itself",
                "jnp.ones((6, 6), bool))",
                "jnp.ones((6, 6), bool), -1)",
                "attends to no later position",
                "to earlier positions alone",
            ),
            (
                "joint projection by heads",
                "reshape(-1, 6, 3, 2, 8).transpose(2, 0, 3, 1, 4)",
                "reshape(-1, 6, 2, 3, 8).transpose(3, 0, 2, 1, 4)",
                "splits `attn.qkv` into (3, heads, size)",
                "`attn.qkv` into (heads, 3, size)",
            ),
            (
                "keys, queries, values",
                "q, k, v = self.qkv",
                "k, q, v = self.qkv",
                "takes its first part, its second, its third as queries, keys, values",
                "its second, its first part, its third as queries, keys, values",
            ),
            (
                "four heads",
                "3, 2, 8).transpose(2, 0, 3, 1, 4)\n        logits = q @ k.mT / 8**0.5",
                "3, 4, 4).transpose(2, 0, 3, 1, 4)\n        logits = q @ k.mT / 4**0.5",
                "has 2 heads",
                (
                    f"4 heads; torch {_SCALED}, "
                    "and jax by 0.5 (1 over the root of a head's size or 1 over the root of heads)"
                ),
            ),
            (
                "logits cut off at 0.1",
                "jax.nn.softmax(jnp.where(mask, logits, -1e9))",
                "jax.nn.softmax(jnp.where(mask, jnp.minimum(logits, 0.1), -1e9))",
            ),
        ],
        "between `embed` and `norm1`": [
            (
                "table of positions in float32",
                "jnp.asarray(TABLE)",
                "jnp.asarray(TABLE, jnp.float32)",
                "There both add a table, and jax alone rounds it to float32",
            ),
        ],
        "between `fc` and `out`": [
            (
                "exact GELU",
                "jax.nn.gelu(self.fc(self.norm2(x)))",
                "jax.nn.gelu(self.fc(self.norm2(x)), approximate=False)",
                "computes GELU's tanh approximation",
                "the exact GELU",
            ),
        ],
    },
    "rotary attention": {
        _SEPARATE: [
            (
                "interleaved pairs",
                "one, other = x[..., :2], x[..., 2:]",
                "one, other = x[..., ::2], x[..., 1::2]",
                "rotates the two halves to base 10000",
                "interleaved pairs to base 10000",
            ),
            ("base 500000", "1e4", "5e5", "rotates the two halves to base 10000", "the two halves to base 500000"),
            ("no rotation", "q, k = rotated(q), rotated(k)", "", "rotates the two halves to base 10000", "nothing"),
            (
                "table of angles in float32",
                "jnp.cos(angles), jnp.sin(angles)",
                "(f(angles).astype(jnp.float32) for f in (jnp.cos, jnp.sin))",
                "computes attention",
                "attention to float32's precision alone",
            ),
            ("rotation the other way", "jnp.cos(angles), jnp.sin(angles)", "jnp.cos(angles), -jnp.sin(angles)"),
            (
                "keys shared in turn",
                "jnp.repeat(k, 2, 1), jnp.repeat(v, 2, 1)",
                "jnp.tile(k, (1, 2, 1, 1)), jnp.tile(v, (1, 2, 1, 1))",
                "shares keys between neighbouring heads",
                "keys between heads in turn",
            ),
            (
                "scale by positions and no mask",
                "jnp.where(mask, q @ k.mT / 4**0.5, -jnp.inf)",
                "q @ k.mT / 6**0.5",
                "scales by 0.5 (1 over the root of a head's size or 1 over the root of heads)",
                (
                    "by 0.408248 (1 over the root of positions); "
                    "torch attends to no later position, and jax to all positions"
                ),
            ),
        ],
        "at `norm1`": [
            (
                "epsilon 1e-5",
                'epsilon=1e-6, name="norm1"',
                'epsilon=1e-5, name="norm1"',
                "Their epsilon differs: 1e-06 in torch and 1e-05 in jax",
            ),
        ],
        "between `gate`, `up` and `down`": [
            (
                "gate and value exchanged",
                "jax.nn.silu(gate) * up",
                "gate * jax.nn.silu(up)",
                "gates by `gate`",
                "by `up`",
            ),
        ],
    },
    "encoder with padding": {
        _SEPARATE: [
            (
                "no mask of padding",
                "jnp.where(mask, logits, -jnp.inf)",
                "logits",
                "hides keys [1, 4] of sample 0, keys [1, 3, 4] of sample 1",
                "no key",
            ),
            (
                "mask of padding off by one",
                "mask = tokens != 0",
                "mask = jnp.roll(tokens != 0, 1)",
                "hides keys [1, 4] of sample 0, keys [1, 3, 4] of sample 1",
                "keys [2, 5] of sample 0, keys [2, 4, 5] of sample 1",
            ),
            ("padding masked by -3", "jnp.where(mask, logits, -jnp.inf)", "jnp.where(mask, logits, logits - 3)"),
            ("scale by the number of heads", "8**0.5", "2**0.5", _SCALED, "by 0.707107 (1 over the root of heads)"),
        ],
        "between `proj` and `norm`": [
            (
                "no residual",
                "x = x + jax.vmap(self.proj)",
                "x = jax.vmap(self.proj)",
                "There torch alone adds what enters `q`",
            ),
        ],
    },
    "gated MLP": {
        "between `gate`, `up` and `down`": [
            (
                "softplus of beta 2",
                "jax.nn.softplus(gate)",
                "jax.nn.softplus(2 * gate) / 2",
                "computes softplus",
                "softplus of beta 2",
            ),
            ("SiLU gate", "jax.nn.softplus(gate)", "jax.nn.silu(gate)", "computes softplus", "SiLU"),
        ],
        "between `stem` and `gate`": [
            (
                "softplus less the logarithm of 2",
                "jax.nn.softplus(self.stem(x))",
                "jax.nn.softplus(self.stem(x)) - jnp.log(2)",
                "computes softplus",
                "softplus less the logarithm of 2",
            ),
            (
                "clip below 0.5",
                "jax.nn.softplus(self.stem(x))",
                "jnp.maximum(jax.nn.softplus(self.stem(x)), 0.5)",
                "There jax alone clips below 0.5",
            ),
        ],
    },
    "norms": {
        "at `a`": [
            (
                "unbiased variance",
                "jnp.square(x).mean(-1, keepdims=True) + 1e-5",
                "jnp.square(x).sum(-1, keepdims=True) / 7 + 1e-5",
                "estimates the variance with n",
                "the variance with n - 1",
            ),
            (
                "epsilon of the standard deviation",
                "+ 1e-5)",
                ") + 1e-5",
                "adds 1e-05 to the variance",
                "1e-05 to the standard deviation",
            ),
            ("hidden epsilon 1e-6", "1e-5", "1e-6", "adds 1e-05 to the variance", "1e-06 to the variance"),
            (
                "no mean subtracted",
                "x = x - x.mean(-1, keepdims=True)",
                "",
                "computes layer normalisation",
                "RMS normalisation",
            ),
        ],
        "at `b`": [
            (
                "cube in the place of the square",
                "jnp.square(x).mean(-1, keepdims=True) + 1e-6",
                "jnp.abs(x**3).mean(-1, keepdims=True) + 1e-6",
            ),
            (
                "scale 1 + weight",
                "+ 1e-6) * self.weight[...]",
                "+ 1e-6) * (1 + self.weight[...])",
                "There jax alone adds what RMS normalisation gives without its scale, as a scale of 1 + weight does",
            ),
        ],
    },
}


def _cause(torch: str = "", jax: str = "") -> str:
    return f"There torch {torch}, and jax {jax}" if jax else torch


PLANTED = tuple(
    Planted(network, name, (right, wrong), place, _cause(*cause))
    for network, places in _TABLE.items()
    for place, mistakes in places.items()
    for name, right, wrong, *cause in mistakes
)


def said(network: str, folder: Path, replacing: tuple[str, str] | None = None, mode: Mode = "eval") -> str:
    """What a proof says of where twins part, with one piece of the port's source replaced.

    Args:
        folder: where their sources are written; on `sys.path`.
    """
    twins = TWINS[network]
    port = twins.jax.replace(*replacing) if replacing else twins.jax
    if replacing and port == twins.jax:
        raise ValueError(f"the port of {network} has no {replacing[0]!r} in it")
    paths = {framework: written(source, folder) for framework, source in (("torch", twins.torch), ("jax", port))}
    case = Case(fwbench.Model("twins", inputs=twins.inputs, **paths), mode)
    return sentence(*(Side(framework, side(framework)(case).calls()) for framework in paths), BOUND)


def written(source: str, folder: Path) -> str:
    """The import path of a module's network. Its name holds its text's digest, as Python keeps modules by name."""
    name = f"twin{int(hashlib.sha256(source.encode()).hexdigest()[:12], 16)}"
    (folder / f"{name}.py").write_text(source)
    return f"{name}:Net"

"""Mistakes in six small ports: the place at which each makes two networks part, and the cause that numbers show.

`docs/evidence/causes.py` writes what a proof says of each, and `test_causes.py` tests it.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import fwbench
from fwbench.parity.case import Case, Mode, side
from fwbench.parity.where.place import Side, sentence
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
_ROOT = "1 over the root of a head's size"

PLANTED = tuple(
    Planted(network, name, (right, wrong), place, cause)
    for network, name, right, wrong, place, cause in (
        (
            "convolutional",
            "SAME padding at stride 2",
            "padding=1",
            'padding="SAME"',
            "at `stem.conv`",
            "SAME in jax pads less above and to the left at stride 2 than padding in numbers does",
        ),
        (
            "convolutional",
            "epsilon 1e-3",
            "epsilon=1e-5",
            "epsilon=1e-3",
            "at `stem.bn`",
            "Their epsilon differs: 1e-05 in torch and 0.001 in jax",
        ),
        (
            "convolutional",
            "clip above 0.75",
            "jax.nn.relu(self.bn(self.conv(x)))",
            "jnp.clip(self.bn(self.conv(x)), 0, 0.75)",
            _STEM,
            "There jax alone clips above 0.75",
        ),
        (
            "convolutional",
            "no ReLU after a block",
            "jax.nn.relu(self.bn(self.conv(x)))",
            "self.bn(self.conv(x))",
            _STEM,
            "There torch computes ReLU, and jax no activation",
        ),
        (
            "convolutional",
            "no residual",
            "x = x + self.body",
            "x = self.body",
            "between `body` and `head`",
            "",
        ),
        (
            "causal attention",
            "no scale",
            "logits = q @ k.mT / 8**0.5",
            "logits = q @ k.mT",
            _FUSED,
            f"There torch scales by 0.353553 ({_ROOT}), and jax by 1 (no scale)",
        ),
        (
            "causal attention",
            "scale by all heads' size",
            "8**0.5",
            "16**0.5",
            _FUSED,
            f"There torch scales by 0.353553 ({_ROOT}), and jax by 0.25 (1 over the root of all heads' size)",
        ),
        (
            "causal attention",
            "scale applied twice",
            "/ 8**0.5",
            "/ 8",
            _FUSED,
            f"There torch scales by 0.353553 ({_ROOT}), and jax by 0.125 (1 over a head's size)",
        ),
        (
            "causal attention",
            "no causal mask",
            "jnp.where(mask, logits, -1e9)",
            "logits",
            _FUSED,
            "There torch attends to no later position, and jax to all positions",
        ),
        (
            "causal attention",
            "causal mask off by one",
            "jnp.ones((6, 6), bool))",
            "jnp.ones((6, 6), bool), 1)",
            _FUSED,
            "There torch attends to no later position, and jax to the next position and all before it",
        ),
        (
            "causal attention",
            "causal mask without the position itself",
            "jnp.ones((6, 6), bool))",
            "jnp.ones((6, 6), bool), -1)",
            _FUSED,
            "There torch attends to no later position, and jax to earlier positions alone",
        ),
        (
            "causal attention",
            "joint projection by heads",
            "reshape(-1, 6, 3, 2, 8).transpose(2, 0, 3, 1, 4)",
            "reshape(-1, 6, 2, 3, 8).transpose(3, 0, 2, 1, 4)",
            _FUSED,
            "There torch splits `attn.qkv` into (3, heads, size), and jax `attn.qkv` into (heads, 3, size)",
        ),
        (
            "causal attention",
            "keys, queries, values",
            "q, k, v = self.qkv",
            "k, q, v = self.qkv",
            _FUSED,
            "There torch takes its first part, its second, its third as queries, keys, values, "
            "and jax its second, its first part, its third as queries, keys, values",
        ),
        (
            "causal attention",
            "four heads",
            "3, 2, 8).transpose(2, 0, 3, 1, 4)\n        logits = q @ k.mT / 8**0.5",
            "3, 4, 4).transpose(2, 0, 3, 1, 4)\n        logits = q @ k.mT / 4**0.5",
            _FUSED,
            f"There torch has 2 heads, and jax 4 heads; torch scales by 0.353553 ({_ROOT}), "
            f"and jax by 0.5 ({_ROOT} or 1 over the root of heads)",
        ),
        (
            "causal attention",
            "logits cut off at 0.1",
            "jax.nn.softmax(jnp.where(mask, logits, -1e9))",
            "jax.nn.softmax(jnp.where(mask, jnp.minimum(logits, 0.1), -1e9))",
            _FUSED,
            "",
        ),
        (
            "causal attention",
            "table of positions in float32",
            "jnp.asarray(TABLE)",
            "jnp.asarray(TABLE, jnp.float32)",
            "between `embed` and `norm1`",
            "There both add a table, and jax alone rounds it to float32",
        ),
        (
            "causal attention",
            "exact GELU",
            "jax.nn.gelu(self.fc(self.norm2(x)))",
            "jax.nn.gelu(self.fc(self.norm2(x)), approximate=False)",
            "between `fc` and `out`",
            "There torch computes GELU's tanh approximation, and jax the exact GELU",
        ),
        (
            "rotary attention",
            "interleaved pairs",
            "one, other = x[..., :2], x[..., 2:]",
            "one, other = x[..., ::2], x[..., 1::2]",
            _SEPARATE,
            "There torch rotates the two halves to base 10000, and jax interleaved pairs to base 10000",
        ),
        (
            "rotary attention",
            "base 500000",
            "1e4",
            "5e5",
            _SEPARATE,
            "There torch rotates the two halves to base 10000, and jax the two halves to base 500000",
        ),
        (
            "rotary attention",
            "no rotation",
            "q, k = rotated(q), rotated(k)",
            "",
            _SEPARATE,
            "There torch rotates the two halves to base 10000, and jax nothing",
        ),
        (
            "rotary attention",
            "table of angles in float32",
            "jnp.cos(angles), jnp.sin(angles)",
            "(f(angles).astype(jnp.float32) for f in (jnp.cos, jnp.sin))",
            _SEPARATE,
            "There torch computes attention, and jax attention to float32's precision alone",
        ),
        (
            "rotary attention",
            "rotation the other way",
            "jnp.cos(angles), jnp.sin(angles)",
            "jnp.cos(angles), -jnp.sin(angles)",
            _SEPARATE,
            "",
        ),
        (
            "rotary attention",
            "keys shared in turn",
            "jnp.repeat(k, 2, 1), jnp.repeat(v, 2, 1)",
            "jnp.tile(k, (1, 2, 1, 1)), jnp.tile(v, (1, 2, 1, 1))",
            _SEPARATE,
            "There torch shares keys between neighbouring heads, and jax keys between heads in turn",
        ),
        (
            "rotary attention",
            "scale by positions and no mask",
            "jnp.where(mask, q @ k.mT / 4**0.5, -jnp.inf)",
            "q @ k.mT / 6**0.5",
            _SEPARATE,
            "There torch scales by 0.5 (1 over the root of a head's size or 1 over the root of heads), "
            "and jax by 0.408248 (1 over the root of positions); "
            "torch attends to no later position, and jax to all positions",
        ),
        (
            "rotary attention",
            "epsilon 1e-5",
            'epsilon=1e-6, name="norm1"',
            'epsilon=1e-5, name="norm1"',
            "at `norm1`",
            "Their epsilon differs: 1e-06 in torch and 1e-05 in jax",
        ),
        (
            "rotary attention",
            "gate and value exchanged",
            "jax.nn.silu(gate) * up",
            "gate * jax.nn.silu(up)",
            "between `gate`, `up` and `down`",
            "There torch gates by `gate`, and jax by `up`",
        ),
        (
            "encoder with padding",
            "no mask of padding",
            "jnp.where(mask, logits, -jnp.inf)",
            "logits",
            _SEPARATE,
            "There torch hides keys [1, 4] of sample 0, keys [1, 3, 4] of sample 1, and jax no key",
        ),
        (
            "encoder with padding",
            "mask of padding off by one",
            "mask = tokens != 0",
            "mask = jnp.roll(tokens != 0, 1)",
            _SEPARATE,
            "There torch hides keys [1, 4] of sample 0, keys [1, 3, 4] of sample 1, "
            "and jax keys [2, 5] of sample 0, keys [2, 4, 5] of sample 1",
        ),
        (
            "encoder with padding",
            "padding masked by -3",
            "jnp.where(mask, logits, -jnp.inf)",
            "jnp.where(mask, logits, logits - 3)",
            _SEPARATE,
            "",
        ),
        (
            "encoder with padding",
            "scale by the number of heads",
            "8**0.5",
            "2**0.5",
            _SEPARATE,
            f"There torch scales by 0.353553 ({_ROOT}), and jax by 0.707107 (1 over the root of heads)",
        ),
        (
            "encoder with padding",
            "no residual",
            "x = x + jax.vmap(self.proj)",
            "x = jax.vmap(self.proj)",
            "between `proj` and `norm`",
            "There torch alone adds what enters `q`",
        ),
        (
            "gated MLP",
            "softplus of beta 2",
            "jax.nn.softplus(gate)",
            "jax.nn.softplus(2 * gate) / 2",
            "between `gate`, `up` and `down`",
            "There torch computes softplus, and jax softplus of beta 2",
        ),
        (
            "gated MLP",
            "softplus less the logarithm of 2",
            "jax.nn.softplus(self.stem(x))",
            "jax.nn.softplus(self.stem(x)) - jnp.log(2)",
            "between `stem` and `gate`",
            "There torch computes softplus, and jax softplus less the logarithm of 2",
        ),
        (
            "gated MLP",
            "SiLU gate",
            "jax.nn.softplus(gate)",
            "jax.nn.silu(gate)",
            "between `gate`, `up` and `down`",
            "There torch computes softplus, and jax SiLU",
        ),
        (
            "gated MLP",
            "clip below 0.5",
            "jax.nn.softplus(self.stem(x))",
            "jnp.maximum(jax.nn.softplus(self.stem(x)), 0.5)",
            "between `stem` and `gate`",
            "There jax alone clips below 0.5",
        ),
        (
            "norms",
            "unbiased variance",
            "jnp.square(x).mean(-1, keepdims=True) + 1e-5",
            "jnp.square(x).sum(-1, keepdims=True) / 7 + 1e-5",
            "at `a`",
            "There torch estimates the variance with n, and jax the variance with n - 1",
        ),
        (
            "norms",
            "epsilon of the standard deviation",
            "+ 1e-5)",
            ") + 1e-5",
            "at `a`",
            "There torch adds 1e-05 to the variance, and jax 1e-05 to the standard deviation",
        ),
        (
            "norms",
            "hidden epsilon 1e-6",
            "1e-5",
            "1e-6",
            "at `a`",
            "There torch adds 1e-05 to the variance, and jax 1e-06 to the variance",
        ),
        (
            "norms",
            "no mean subtracted",
            "x = x - x.mean(-1, keepdims=True)",
            "",
            "at `a`",
            "There torch computes layer normalisation, and jax RMS normalisation",
        ),
        (
            "norms",
            "cube in the place of the square",
            "jnp.square(x).mean(-1, keepdims=True) + 1e-6",
            "jnp.abs(x**3).mean(-1, keepdims=True) + 1e-6",
            "at `b`",
            "",
        ),
        (
            "norms",
            "scale 1 + weight",
            "+ 1e-6) * self.weight[...]",
            "+ 1e-6) * (1 + self.weight[...])",
            "at `b`",
            "There jax alone adds what RMS normalisation gives without its scale, as a scale of 1 + weight does",
        ),
    )
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
    paths = {framework: _written(source, folder) for framework, source in (("torch", twins.torch), ("jax", port))}
    case = Case(fwbench.Model("twins", inputs=twins.inputs, **paths), mode)
    return sentence(*(Side(framework, side(framework)(case).calls()) for framework in paths), BOUND)


def _written(source: str, folder: Path) -> str:
    """The import path of a module's network. Its name holds its text's digest, as Python keeps modules by name."""
    name = f"planted_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    (folder / f"{name}.py").write_text(source)
    return f"{name}:Net"

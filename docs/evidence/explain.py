"""How often `fwbench explain` names the planted cause: into explain.jsonl and explain.md beside this file.

    python docs/evidence/explain.py               # the searches that are not in explain.jsonl yet, then the table
    python docs/evidence/explain.py --table       # the table alone

Each search has a project of its own, a network in a git repository. HEAD has one planted cause, two or none, and four
harmless changes. The command itself runs the searches, one after another.
"""

import json
import math
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fwbench.ext.trials.rates import clopper_pearson
from fwbench.machine import machine, versions
from fwbench.machine.load import OtherLoad
from fwbench.text import row

HERE = Path(__file__).resolve()
DATA = HERE.with_suffix(".jsonl")
CHECKOUT = HERE.parents[2]
MINUTES = 6

TESTS = """
import fwbench
from fwbench.models.inputs import normal

ATTENTION = fwbench.Model(
    "attention", inputs=normal(32, 128), torch="mine.torch_attention:Net", jax="mine.jax_attention:Net"
)
CONVOLUTIONS = fwbench.Model("convolutions", inputs=normal(3, 32, 32), torch="mine.torch_convolutions:Net")
PICTURES = fwbench.Model("pictures", inputs=normal(32, 32, 3), jax="mine.jax_pictures:Net")
"""

# Imported by each network. HEAD's four harmless changes are in this module.
COMMON = '''
"""What all networks share."""

NAME = "one"


def label(value):
    return f"{NAME}: {value}"


LEVELS = (1, 2, 3)


def level(number):
    return LEVELS[number % 3]


SCALE = 1.0
'''
HARMLESS = {
    '"one"': '"two"',
    "{NAME}: {value}": "{value} of {NAME}",
    "(1, 2, 3)": "(3, 2, 1)",
    "number % 3": "(number + 1) % 3",
}

FILES = {
    "mine/torch_attention.py": """
        import torch
        import torch.nn.functional as F
        from torch import nn

        from mine import common


        def extra(x):
            return x


        def activation(x):
            return F.gelu(x)


        def weighted(scores, values):
            return torch.softmax(scores, -1) @ values


        class Block(nn.Module):
            def __init__(self, width, hidden):
                super().__init__()
                self.norm = nn.LayerNorm(width)
                self.qkv = nn.Linear(width, 3 * width)
                self.out = nn.Linear(width, width)
                self.up = nn.Linear(width, hidden)
                self.down = nn.Linear(hidden, width)

            def forward(self, x):
                n, t, width = x.shape
                normed = self.norm(x)
                qkv = self.qkv(normed).reshape(n, t, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
                queries, keys, values = qkv
                scores = queries @ keys.transpose(-1, -2) / (width // 4) ** 0.5
                mixed = weighted(scores, values).transpose(1, 2).reshape(n, t, width)
                x = x + self.out(mixed)
                x = extra(x)
                return x + self.down(activation(self.up(x)))


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList(Block(128, 512) for _ in range(3))
                self.head = nn.Linear(128, 10)

            def forward(self, x):
                for block in self.blocks:
                    x = block(x)
                return self.head(x.mean(1) * common.SCALE)
        """,
    "mine/torch_convolutions.py": """
        import torch
        import torch.nn.functional as F
        from torch import nn

        from mine import common


        def extra(x):
            return x


        class Block(nn.Module):
            def __init__(self, inputs, outputs):
                super().__init__()
                self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
                self.norm = nn.BatchNorm2d(outputs)

            def forward(self, x):
                x = self.norm(self.conv(x))
                return F.max_pool2d(F.relu(x), 2)


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([Block(3, 32), Block(32, 64), Block(64, 64)])
                self.head = nn.Linear(64, 10)

            def forward(self, x):
                for block in self.blocks:
                    x = extra(block(x))
                return self.head(x.mean((2, 3)) * common.SCALE)
        """,
    "mine/jax_attention.py": """
        import jax
        import jax.numpy as jnp
        from flax import nnx

        from mine import common


        def extra(x):
            return x


        def activation(x):
            return nnx.gelu(x, approximate=False)


        def normalised(scores):
            return nnx.softmax(scores, -1)


        class Block(nnx.Module):
            def __init__(self, width, hidden, *, rngs):
                self.norm = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
                self.qkv = nnx.Linear(width, 3 * width, rngs=rngs)
                self.out = nnx.Linear(width, width, rngs=rngs)
                self.up = nnx.Linear(width, hidden, rngs=rngs)
                self.down = nnx.Linear(hidden, width, rngs=rngs)

            def __call__(self, x):
                n, t, width = x.shape
                normed = self.norm(x)
                queries, keys, values = jnp.split(self.qkv(normed).reshape(n, t, 12, width // 4), 3, axis=2)
                scores = jnp.einsum("nthd,nshd->nhts", queries, keys) / (width // 4) ** 0.5
                mixed = jnp.einsum("nhts,nshd->nthd", normalised(scores), values).reshape(n, t, width)
                x = x + self.out(mixed)
                x = extra(x)
                return x + self.down(activation(self.up(x)))


        class Net(nnx.Module):
            def __init__(self, *, rngs):
                self.blocks = nnx.List([Block(128, 512, rngs=rngs) for _ in range(3)])
                self.head = nnx.Linear(128, 10, rngs=rngs)

            def __call__(self, x):
                for block in self.blocks:
                    x = block(x)
                return self.head(x.mean(1) * common.SCALE)
        """,
    "mine/jax_pictures.py": """
        import jax
        import jax.numpy as jnp
        from flax import nnx

        from mine import common


        def extra(x):
            return x


        class Block(nnx.Module):
            def __init__(self, inputs, outputs, *, rngs):
                self.conv = nnx.Conv(inputs, outputs, (3, 3), padding=1, rngs=rngs)
                self.norm = nnx.BatchNorm(outputs, momentum=0.9, epsilon=1e-5, rngs=rngs)

            def __call__(self, x):
                x = self.norm(self.conv(x))
                return nnx.max_pool(nnx.relu(x), (2, 2), (2, 2))


        class Net(nnx.Module):
            def __init__(self, *, rngs):
                self.blocks = nnx.List([Block(*pair, rngs=rngs) for pair in ((3, 32), (32, 64), (64, 64))])
                self.head = nnx.Linear(64, 10, rngs=rngs)

            def __call__(self, x):
                for block in self.blocks:
                    x = extra(block(x))
                return self.head(x.mean((1, 2)) * common.SCALE)
        """,
}


@dataclass(frozen=True)
class Cause:
    """A planted cause.

    Attributes:
        kind: the class of cause, such as `fusion lost`.
        case: lane and model, such as `torch attention`.
        change: a text in the network's file, and its replacement in HEAD; empty where the cause is no edit.
        variables: of HEAD's environment, as NAME=VALUE.
        distribution: whether head has another version of a library.
    """

    kind: str
    case: str
    change: tuple[str, str] = ("", "")
    variables: str = ""
    distribution: bool = False


_EXTRA = "def extra(x):\n    return x\n"


def _extra(*lines: str) -> tuple[str, str]:
    return _EXTRA, "def extra(x):\n" + "".join(f"    {line}\n" for line in lines)


CAUSES: Mapping[str, Cause] = {
    "gelu by hand": Cause("fusion lost", "torch attention", ("F.gelu(x)", "0.5 * x * (1 + torch.erf(x / 2**0.5))")),
    "softmax by hand": Cause(
        "fusion lost",
        "torch attention",
        ("torch.softmax(scores, -1) @ values", "(scores.exp() / scores.exp().sum(-1, keepdim=True)) @ values"),
    ),
    "a value read back": Cause(
        "host synchronisation",
        "torch attention",
        _extra("for _ in range(8):", "    x = x if x.abs().max().item() > 0 else -x", "return x"),
    ),
    "copies": Cause("new copy", "torch attention", _extra("for _ in range(24):", "    x = x.clone()", "return x")),
    "a transposed copy": Cause(
        "layout",
        "torch attention",
        _extra("for _ in range(4):", "    x = x.transpose(1, 2).contiguous().transpose(1, 2).contiguous()", "return x"),
    ),
    "a part in float64": Cause("dtype", "torch attention", _extra("return (x.double() * 1.0).tanh().float()")),
    "wider hidden layers": Cause("more work", "torch attention", ("Block(128, 512)", "Block(128, 640)")),
    "the oldest instructions": Cause("environment", "torch attention", variables="ATEN_CPU_CAPABILITY=default"),
    "a library's new version": Cause(
        "library version",
        "torch attention",
        _extra("import slowdown", "", "return slowdown.apply(x)"),
        distribution=True,
    ),
    "normalisation by hand": Cause(
        "fusion lost",
        "torch convolutions",
        (
            "x = self.norm(self.conv(x))",
            "x = self.conv(x)\n"
            "        norm = self.norm\n"
            "        scale = norm.weight / (norm.running_var + 1e-5).sqrt()\n"
            "        x = (x - norm.running_mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]",
        ),
    ),
    "a wider kernel": Cause("more work", "torch convolutions", ("outputs, 3, padding=1", "outputs, 5, padding=2")),
    "channels last and back": Cause(
        "layout",
        "torch convolutions",
        (
            "x = self.norm(self.conv(x))",
            "x = self.norm(self.conv(x).contiguous(memory_format=torch.channels_last).contiguous())",
        ),
    ),
    "oneDNN without AVX": Cause("flag", "torch convolutions", variables="ONEDNN_MAX_CPU_ISA=SSE41"),
    "a loop in Python": Cause(
        "host work", "torch convolutions", _extra("return torch.stack([each * 1.0 for each in x])")
    ),
    "a graph break": Cause("graph break", "torch-compile attention", _extra("torch._dynamo.graph_break()", "return x")),
    "a barrier": Cause(
        "fusion split",
        "jax attention",
        (
            "nnx.gelu(x, approximate=False)",
            "jax.lax.optimization_barrier(0.5 * jax.lax.optimization_barrier(x))"
            " * (1 + jax.lax.optimization_barrier(jax.lax.erf(x / 2**0.5)))",
        ),
    ),
    "a scan over samples": Cause("serial work", "jax attention", _extra("return jax.lax.map(jnp.sin, x)")),
    "more layers": Cause("more work", "jax attention", ("for _ in range(3)", "for _ in range(4)")),
    "no optimisation in LLVM": Cause(
        "compiler flag", "jax attention", variables="XLA_FLAGS=--xla_backend_optimization_level=0"
    ),
    "an accurate power": Cause("more work", "jax pictures", _extra("return jnp.power(jnp.abs(x) + 1.0, 1.001)")),
    "a transposed convolution's layout": Cause(
        "layout",
        "jax pictures",
        (
            "x = self.norm(self.conv(x))",
            "x = self.norm(self.conv(x))\n"
            "        x = jax.lax.optimization_barrier(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)",
        ),
    ),
    "max pooling by comparisons": Cause(
        "fusion lost",
        "jax pictures",
        (
            "return nnx.max_pool(nnx.relu(x), (2, 2), (2, 2))",
            "n, h, w, c = x.shape\n        return nnx.relu(x).reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))",
        ),
    ),
}

PAIRS = (
    ("gelu by hand", "copies"),
    ("softmax by hand", "wider hidden layers"),
    ("a value read back", "gelu by hand"),
    ("the oldest instructions", "copies"),
    ("a wider kernel", "a loop in Python"),
    ("channels last and back", "a loop in Python"),
    ("oneDNN without AVX", "normalisation by hand"),
    ("a barrier", "more layers"),
    ("more layers", "a scan over samples"),
    ("max pooling by comparisons", "an accurate power"),
)
UNCHANGED = tuple(
    (case, number)
    for number in range(4)
    for case in (
        "torch attention",
        "torch convolutions",
        "torch-compile attention",
        "jax attention",
        "jax pictures",
    )
)


@dataclass(frozen=True)
class Planted:
    """A search to be run."""

    name: str
    case: str
    causes: tuple[str, ...]


def searches() -> Iterator[Planted]:
    for name, cause in CAUSES.items():
        yield Planted(name, cause.case, (name,))
    for both in PAIRS:
        yield Planted(" and ".join(both), CAUSES[both[0]].case, both)
    for case, number in UNCHANGED:
        yield Planted(f"nothing in {case}, {number}", case, ())


def _git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=fwbench", "-c", "user.email=fwbench@localhost")
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


def project(folder: Path, planted: Planted) -> tuple[str, str, list[str]]:
    """Make the project.

    Returns:
        BASE and HEAD as the command takes them, and by cause what its answer must name, as `_is` takes it.
    """
    lane, model = planted.case.split()
    file = f"mine/{lane.partition('-')[0]}_{model}.py"
    (folder / "mine").mkdir(parents=True)
    texts = {
        "mine/common.py": COMMON,
        "test_speed.py": TESTS
        + f"""

@fwbench.benchmark({model.upper()})
def test_speed(fwbench_measure):
    fwbench_measure()
""",
    }
    texts |= {name: textwrap.dedent(text) for name, text in FILES.items()}
    causes = [CAUSES[name] for name in planted.causes]
    for cause in causes:
        if cause.distribution:
            # Both sides call the library; its version differs.
            texts[file] = texts[file].replace(*cause.change)
    for name, text in texts.items():
        (folder / name).write_text(text.lstrip())
    _git(folder, "init", "--quiet", "--initial-branch=main")
    _git(folder, "add", ".")
    _git(folder, "commit", "--quiet", "--message", "Base")
    words = ["."]
    base = ["main"]
    after = texts[file]
    for cause in causes:
        if cause.distribution:
            base.append(_environment(folder.parent / "base", "1.0", "x"))
            words.append(_environment(folder.parent / "head", "2.0", "x.sort(-1).values.flip(-1)"))
        elif cause.variables:
            words.append(cause.variables)
        else:
            before, now = cause.change
            assert before in after, before
            after = after.replace(before, now)
    (folder / file).write_text(after.lstrip())
    common = COMMON.lstrip()
    for before, now in HARMLESS.items():
        common = common.replace(before, now)
    (folder / "mine/common.py").write_text(common)
    return " ".join(base), " ".join(words), [_place(cause, file, after.lstrip()) for cause in causes]


def _place(cause: Cause, file: str, text: str) -> str:
    """The library's or the variable's name, or the file and the first and the last line of the change in HEAD."""
    if cause.distribution:
        return "slowdown (1.0"
    if cause.variables:
        return cause.variables.partition("=")[0]
    first = text[: text.index(cause.change[1])].count("\n") + 1
    return f"{file} {first} {first + cause.change[1].rstrip().count(chr(10))}"


def _environment(folder: Path, version: str, expression: str) -> str:
    """An interpreter that sees this one's packages, and a library in this version."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (site / "all.pth").write_text(sysconfig.get_path("purelib"))
    (site / "slowdown.py").write_text(f"def apply(x):\n    return {expression}\n")
    info = site / f"slowdown-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: slowdown\nVersion: {version}\n")
    (info / "RECORD").write_text(f"slowdown.py,,\n{info.name}/METADATA,,\n")
    return str(folder / "bin" / "python")


_NAMED = re.compile(r"^(?P<size>[+-][\d.]+)% \(.*?\) comes from (?P<parts>.*?): it is gone with that", re.MULTILINE)
_WHOLE = re.compile(r"HEAD's latency differs from BASE's by ([+-][\d.]+)% \(([+-][\d.]+)% to ([+-][\d.]+)%\)")
_PLACE = re.compile(r"(?P<file>\S+\.py), (?:lines? |what was removed after line )(?P<first>\d+)(?: to (?P<last>\d+))?")


def run(planted: Planted) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve() / "project"
        base, head, places = project(folder, planted)
        lane, model = planted.case.split()
        command = [sys.executable, "-m", "fwbench", "explain", base, head, "batch_size=8", f"--model={model}"]
        command += [f"--lane={lane}", f"--minutes={MINUTES}"]
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        load = OtherLoad()
        begun = time.monotonic()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - begun
        other = load.read().value
    return {
        "name": planted.name,
        "case": planted.case,
        "causes": list(planted.causes),
        "places": places,
        "seconds": seconds,
        "other_load": other,
        "code": done.returncode,
        "answer": done.stdout,
        "error": done.stderr[-2000:],
    }


@dataclass(frozen=True)
class Answer:
    """What a search answered.

    Attributes:
        named: the parts that it named, in their order.
        sizes: the change of each, in percent.
        right: by planted cause, whether a named part is it.
        wrong: the named parts that are none of the planted causes.
        whole: HEAD's change against BASE, and its interval, in percent; None: it was not measured.
    """

    named: Sequence[str]
    sizes: Sequence[float]
    right: Sequence[bool]
    wrong: Sequence[str]
    whole: Sequence[float] | None

    @property
    def accounted(self) -> float | None:
        """The share of the whole difference, in the logarithm of the latency, that the named parts make."""
        if not self.whole or not self.named:
            return None
        return sum(math.log1p(size / 100) for size in self.sizes) / math.log1p(self.whole[0] / 100)


def answer(each: Mapping[str, object]) -> Answer:
    """Read the command's answer."""
    named = [match["parts"] for match in _NAMED.finditer(each["answer"])]
    whole = _WHOLE.search(each["answer"])
    return Answer(
        named,
        [float(match["size"]) for match in _NAMED.finditer(each["answer"])],
        [any(_is(part, place) for part in named) for place in each["places"]],
        [part for part in named if not any(_is(part, place) for place in each["places"])],
        [float(value) for value in whole.groups()] if whole else None,
    )


def _is(part: str, cause: str) -> bool:
    """Whether the named part is the planted cause: the same variable or library, or lines that overlap."""
    if " " not in cause or cause.startswith("slowdown"):
        return part.startswith(cause)
    file, first, last = cause.split()
    return any(
        match["file"] == file
        and int(match["first"]) <= int(last)
        and int(match["last"] or match["first"]) >= int(first)
        for match in _PLACE.finditer(part)
    )


def kept() -> list[dict[str, object]]:
    return [json.loads(line) for line in DATA.read_text().splitlines()[1:]] if DATA.exists() else []


def table() -> str:
    """The page, from the searches that are kept."""
    header = json.loads(DATA.read_text().splitlines()[0])
    runs = kept()
    single = [each for each in runs if len(each["causes"]) == 1]
    double = [each for each in runs if len(each["causes"]) == 2]
    answers = {each["name"]: answer(each) for each in runs}
    # A search that measured nothing fails to name a planted cause, and says nothing of a head without one.
    failed = [each for each in runs if answers[each["name"]].whole is None]
    unchanged = [each for each in runs if not each["causes"] and each not in failed]
    first = sum(
        bool(told.named) and told.named[0] not in told.wrong for told in (answers[each["name"]] for each in single)
    )
    both = sum(all(answers[each["name"]].right) for each in double)
    false = sum(bool(answers[each["name"]].wrong) for each in unchanged)
    wrong = sum(len(answers[each["name"]].wrong) for each in single + double)
    early = sum(each["code"] == 1 for each in runs if each not in failed)
    shares = [told.accounted for told in answers.values() if told.accounted is not None]
    seconds = [each["seconds"] for each in runs]
    loads = [each["other_load"] for each in runs if each["other_load"] is not None]
    of_all = (len(tuple(searches())), len(CAUSES), len(PAIRS), len(UNCHANGED))
    versions_said = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    lines = [
        "# How often `fwbench explain` names the cause",
        "",
        "Made by `python docs/evidence/explain.py`, which plants causes in two networks, in PyTorch and JAX, and runs "
        f"the command on each. {len(runs)} of its {of_all[0]} searches were run, on {header['cpu']}, with "
        f"{versions_said}, each with at most {header['minutes']} minutes.",
        "Each head holds four more changes, which cost nothing. A cause counts as named where the part that was put "
        "back is the planted environment variable or library, or holds lines of the planted change.",
        "",
        f"- One planted cause ({of_all[1]} searches planned): it was named first in {_rate(first, len(single))}.",
        f"- Two planted causes ({of_all[2]} planned): both were named in {_rate(both, len(double))}.",
        f"- No planted cause ({of_all[3]} planned): a part was named all the same in {_rate(false, len(unchanged))}.",
        f"- Parts that were named beside planted causes and are none: {wrong}.",
        f"- Searches that the minutes ended early, and count as they are: {early}. Searches that measured nothing: "
        f"{len(failed)}.",
    ]
    if shares:
        low, *_, high = statistics.quantiles(shares, n=10) if len(shares) > 1 else shares * 2
        lines.append(
            f"- Share of the whole difference that the named parts account for: {statistics.median(shares):.0%} in the "
            f"median, {low:.0%} to {high:.0%} for eight searches of ten."
        )
    lines += [
        f"- Seconds a search: {statistics.median(seconds):.0f} in the median, {max(seconds):.0f} at most.",
        f"- Share of the CPUs' time that other processes took: {max(loads, default=0):.1%} at most.",
        "",
        row(["planted", "in", "kind", "HEAD against BASE", "named", "accounted for", "seconds"]),
        row(["---", "---", "---", "---:", "---", "---:", "---:"]),
        *(_row(each) for each in runs),
        "",
    ]
    return "\n".join(lines)


def _rate(count: int, of: int) -> str:
    """A share of searches, and its interval."""
    if not of:
        return "none of 0"
    low, high = clopper_pearson(count, of)
    return f"**{count} of {of}** ({low:.0%} to {high:.0%} at 95 %)"


def _row(each: Mapping[str, object]) -> str:
    kinds = ", ".join(CAUSES[name].kind for name in each["causes"])
    told = answer(each)
    whole = "{:+.1f} % ({:+.1f} to {:+.1f})".format(*told.whole) if told.whole else "not known"
    verdicts = ["yes" if right else "no" for right in told.right] + [f"wrong: {part}" for part in told.wrong]
    share = told.accounted
    return row(
        [
            each["name"],
            each["case"],
            kinds,
            whole,
            ", ".join(verdicts) or "nothing",
            "" if share is None else f"{share:.0%}",
            f"{each['seconds']:.0f}",
        ]
    )


def main() -> None:
    if "--table" not in sys.argv:
        if not DATA.exists():
            here = machine()
            header = {"cpu": here.cpu, "versions": versions(("torch", "jax", "jaxlib", "flax")), "minutes": MINUTES}
            DATA.write_text(json.dumps(header) + "\n")
        done = {each["name"] for each in kept()}
        for planted in searches():
            if planted.name not in done:
                result = run(planted)
                with DATA.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                print(planted.name, answer(result), f"{result['seconds']:.0f} s", flush=True)
    HERE.with_suffix(".md").write_text(table())


if __name__ == "__main__":
    main()

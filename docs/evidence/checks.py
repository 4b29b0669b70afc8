"""How far right lanes are apart in the check of a run, and which planted mistakes it finds: `checks.md` and its data.

    python docs/evidence/checks.py          measures what checks.jsonl lacks (about half an hour on two cores in all)
    python docs/evidence/checks.py --page   writes checks.md from it

A run of it is one process for each model and number of threads. Every lane builds its program once, on small images,
and starts again from the weights of each seed; the sketches of every two lanes are then held against each other. For
the mistakes of `tests/proving`, the program is built with the mistake in it, in inference and, where that shows
nothing, in training, and held against PyTorch's.
"""

import argparse
import dataclasses
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from lines import stored, table

HERE = Path(__file__).parent
# The folder of `tests`.
sys.path.insert(0, str(HERE.parents[1]))
DATA = HERE / "checks.jsonl"
MODELS = ("mlp", "cnn", "mobilenet_v3_small", "efficientnet_b0", "vit_b_16", "resnet50")
SIZES = {"resnet50": 64, "vit_b_16": 64, "mobilenet_v3_small": 64, "efficientnet_b0": 64}
PRECISIONS = ("fp32", "bf16")
MODES = {"inference": 2, "train_step": 8}
SEEDS = range(3)
# Mistakes in what TensorFlow computes in float64 alone: its timed program has the fused operator in that place.
UNTIMED = ("biased_running_variance-statistics", "statistics_behind_stop_gradient-gradients")
# Compiling takes minutes in these; the small models stand for all.
SLOW = {"torch-compile": ("mlp", "cnn"), "tensorflow-xla": ("mlp", "cnn")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "THREADS"))
    options = parser.parse_args()
    if options.child:
        for line in child(*options.child):
            print(json.dumps(line), flush=True)
    elif options.page:
        (HERE / "checks.md").write_text(page(stored(DATA)))
    else:
        for model, threads in itertools.product(MODELS, (2, 1)):
            if (model, threads) not in {(line["model"], line["threads"]) for line in stored(DATA)}:
                lines = measured(model, threads)
                with DATA.open("a") as data:
                    data.writelines(f"{json.dumps(line)}\n" for line in lines)


def measured(model: str, threads: int) -> list[dict]:
    """The lines of one child."""
    from fwbench.record.lanes import LANES
    from fwbench.worker.client.starting import environment

    variables = dict(os.environ)
    for lane in LANES.values():
        variables = environment(variables, threads, "cpu", lane)
    command = [sys.executable, __file__, "--child", model, str(threads)]
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    print(f"{model}, {threads} threads: done", file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def child(name: str, threads: str) -> Iterator[dict]:
    """Right lanes, and with as many threads as the machine has the mistakes."""
    import torchvision  # noqa: F401 (before TensorFlow, whose LLVM its compiler's would clash with)

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(threads)])
    from fwbench.compare.agreement import agreement

    for precision, (mode, batch) in itertools.product(PRECISIONS, MODES.items()):
        checked = {lane: sketches(lane, name, mode, batch, precision) for lane in lanes(name)}
        for (lane, own), (beside, other) in itertools.combinations(checked.items(), 2):
            for seed in SEEDS:
                found = agreement(own[seed], other[seed])
                case = {"model": name, "mode": mode, "precision": precision, "threads": int(threads), "seed": seed}
                yield {"kind": "right", **case, "lanes": [lane, beside], **dataclasses.asdict(found)}
    if threads == "2":
        yield from mistakes(name)


def lanes(model: str) -> list[str]:
    names = ("torch", "jax", "tensorflow", "torch-compile", "tensorflow-xla")
    return [lane for lane in names if model in SLOW.get(lane, (model,))]


def sketches(lane: str, name: str, mode: str, batch: int, precision: str, seeds=SEEDS, **fields) -> list:
    """What a lane's program computes from the weights of each seed, as measurements that hold nothing else."""
    from fwbench import frameworks
    from fwbench.meters.sketching import of_inference, of_training
    from fwbench.models import CATALOG
    from fwbench.models.project import complete
    from fwbench.models.weights import canonical
    from fwbench.record.lanes import LANES
    from fwbench.record.measurement import Measurement
    from fwbench.record.workload import Workload

    model = complete(CATALOG[name])
    axes = (("image_size", SIZES[name]),) if name in SIZES else ()
    workload = Workload(lane, name, mode, batch, precision, axes=axes, **fields)
    framework = frameworks.load(LANES[lane].adapter)
    # JAX's is asked first, as it leaves out its plugin for GPUs.
    assert framework.unavailable(workload, model) is None
    shapes = framework.weight_shapes(model, model.sizes(axes))
    program = framework.build(workload, model, canonical("drawn", model, shapes, 0))
    program.compile()
    checks = []
    with program.session():
        for seed in seeds:
            weights = canonical("drawn", model, shapes, seed)
            if mode == "inference":
                program.restart(weights)
                program.step()
                program.wait()
                checks.append(of_inference(program, precision))
            else:
                checks.append(of_training(program, weights, precision))
    return [Measurement(workload, parity={"check": check}) for check in checks]


def mistakes(name: str) -> Iterator[dict]:
    """Every planted mistake of the model, in both modes."""
    from unittest import mock

    import optax
    import pytest

    from fwbench.compare.agreement import agreement
    from fwbench.ext.tensorflow import program as tensorflow_program
    from fwbench.ext.tensorflow.networks import Network
    from fwbench.frameworks.jax import program as jax_program
    from tests.proving import mutations, tensorflow_mutations

    def in_jax(mutation, patch) -> None:
        own = jax_program.network

        def planted(model, sizes):
            built = own(model, sizes)
            module = built.module()
            mutation.plant(module, patch)
            return built.replaced(module)

        patch.setattr(jax_program, "network", planted)
        # In a proof the optimizers are its own.
        if mutation.mistake == "nesterov":
            patch.setattr(optax, "sgd", lambda rate, momentum, own=optax.sgd: own(rate, momentum, nesterov=True))
        if mutation.mistake == "large_adam_epsilon":
            patch.setattr(optax, "adam", lambda rate, own=optax.adam: own(rate, eps=1e-6))

    def in_tensorflow(mutation, patch) -> None:
        class Planted(Network):
            def __init__(self, *arguments, **keywords):
                super().__init__(*arguments, **keywords)
                mutation.plant(self.module, patch)

        patch.setattr(tensorflow_program, "Network", Planted)

    references = {}
    for lane, plant, of in (("jax", in_jax, mutations), ("tensorflow", in_tensorflow, tensorflow_mutations)):
        for mutation in of.MUTATIONS:
            if mutation.model != name:
                continue
            optimizer = "sgd" if mutation.quantity == "sgd" else "adam"
            verdicts = {}
            for mode, batch in MODES.items():
                case = (name, mode, batch, "fp32", (0,))
                key = (*case, optimizer)
                if key not in references:
                    references[key] = sketches("torch", *case, optimizer=optimizer)[0]
                with pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ):
                    plant(mutation, patch)
                    found = agreement(references[key], sketches(lane, *case, optimizer=optimizer)[0])
                verdicts[mode] = dataclasses.asdict(found)
                if found.agrees is False:
                    break
            mistake = {"model": name, "lane": lane, "mistake": mutation.name, "threads": 2}
            yield {"kind": "wrong", **mistake, "verdicts": verdicts}


def page(lines: list[dict]) -> str:
    """The tables as Markdown."""
    right = [line for line in lines if line["kind"] == "right"]
    planted = [line for line in lines if line["kind"] == "wrong"]
    wrong = [line for line in planted if not (line["lane"] == "tensorflow" and line["mistake"] in UNTIMED)]
    rows = []
    for model, mode, precision in itertools.product(MODELS, MODES, PRECISIONS):
        of = [line for line in right if (line["model"], line["mode"], line["precision"]) == (model, mode, precision)]
        judged = [line for line in of if line["agrees"] is not None]
        if not of:
            continue
        nearest = max(judged, key=lambda line: line["difference"] / line["bound"], default=None)
        near = f"{nearest['difference']:.1e} of {nearest['bound']:.0e}" if nearest else "-"
        share = f"{nearest['difference'] / nearest['bound']:.2f}" if nearest else "-"
        different = sum(line["agrees"] is False for line in of)
        rows.append((model, mode, precision, len(of), len(of) - len(judged), different, near, share))
    missed = [line for line in wrong if not _finds(line)]
    smallest = [
        (line["lane"], line["model"], line["mistake"], *(_verdict(line["verdicts"].get(mode)) for mode in MODES))
        for line in wrong
    ]
    different = sum(line["agrees"] is False for line in right)
    only = "; ".join(f"{line['mistake']} ({line['model']} in {line['lane']})" for line in missed)
    return f"""# The check in the very run: right lanes and planted mistakes

Made by `python docs/evidence/checks.py` on a CPU, on small images (64 pixels; batch 2 in inference, 8 in training),
with one and two threads and several seeds. Two lanes of one workload are held against each other as a run does it
(`fwbench/compare/agreement.py`). TF32 needs a GPU and was not measured.

## Right lanes

{len(right)} pairs of right lanes, {different} of them called different. *Nearest* is the result that came nearest to
its bound, and *share* how near. *Silent*: nothing in the results could be compared closely.

{table(("model", "mode", "precision", "pairs", "silent", "different", "nearest", "share"), rows)}

## Planted mistakes

In fp32 the check finds {len(wrong) - len(missed)} of {len(wrong)} mistakes that the proofs are tested with, in
inference or, where inference shows nothing, in training. The other {len(planted) - len(wrong)} are in what TensorFlow
computes in float64 alone, and so in no program that is timed. {f"Only float64 finds: {only}." if missed else ""}

A wrong gradient passes where rounding moves a right one by half its length or more, as in the first blocks of
MobileNetV3-Small in training mode, on so small images and batches.

{table(("lane", "model", "mistake", *MODES), smallest)}
"""


def _finds(line: dict) -> bool:
    return any(verdict["agrees"] is False for verdict in line["verdicts"].values())


def _verdict(found: dict | None) -> str:
    if found is None:
        return ""
    if found["agrees"] is None:
        return "silent"
    if found["reason"]:
        return "found"
    share = f"{found['difference']:.1e} of {found['bound']:.0e}"
    return f"**{share}**" if found["agrees"] is False else share


if __name__ == "__main__":
    main()

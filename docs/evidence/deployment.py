"""The lanes for deployment on this machine: a run of nine models, and each lane beside a plain call of its runtime.

    python docs/evidence/deployment.py            writes deployment.md (about 25 minutes on two cores)
    python docs/evidence/deployment.py --by-hand  measures the second table alone

The nine models are the suite's six and the three of docs/your-model.md: a network for images, one for tokens with two
inputs, and a function without weights. The first of these three has a network in Keras, too, for the lanes of Keras.

The plain call is the one that a runtime's own documentation shows, with the lane's number of threads (in OpenVINO also
fp32, in Keras `jit_compile=True`) and no other setting. It runs the files that the lane has exported; for torchax it
runs the module that was exported, for Keras the network. The lane and the plain call take turns in one process. A turn
begins after a pause, as a runtime's threads wait busily for a while after the last call. It is at least 30 calls and
50 ms, or half a second, and the median over the turns counts.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import fwbench
from fwbench.machine import machine
from fwbench.models import CATALOG, Model
from fwbench.record.lanes import EXPORTS, LANES
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import environment

HERE = Path(__file__).resolve().parent
PAGE = HERE / "deployment.md"
DERIVED = ("onnxruntime", "openvino", "torch-aoti", "torchax")
KERAS = ("keras-jax", "keras-torch")
MODELS = tuple(name for name, model in CATALOG.items() if model.networks)
MINUTES = 0
TURNS, CALLS, SHORTEST, LONGEST, PAUSE = 9, 30, 0.05, 0.5, 0.05

BERT = """
from transformers import BertConfig, BertForSequenceClassification

def build():
    config = BertConfig(vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=256, max_position_embeddings=128, num_labels=5)
    return BertForSequenceClassification(config)
"""
SPEED = """
import fwbench

tinynext = fwbench.Model("tinynext", torch="mine.torch_net:TinyNext", jax="mine.jax_net:TinyNext",
                         tensorflow="mine.keras_net:TinyNext", inputs=fwbench.image(32, 32, 3))
bert = fwbench.Model("tiny-bert", torch="mine.bert:build", axes={"length": 128}, output="logits", inputs={
    "input_ids": fwbench.tokens("length", vocabulary=1000),
    "attention_mask": fwbench.ones("length", dtype="int32"),
})
attention = fwbench.Model("attention", torch="mine.attention:in_torch", jax="mine.attention:in_jax",
                          axes={"length": 64}, tolerance={"output": 1e-6},
                          inputs={name: fwbench.normal("length", 4, 16) for name in ("query", "key", "value")})


@fwbench.benchmark(MODELS, tinynext, bert, attention, modes=["inference"], batch_sizes=[1],
                   lanes=["torch", "jax", LANES])
def test_speed(fwbench_measure):
    fwbench_measure()


@fwbench.benchmark(tinynext, modes=["inference"], batch_sizes=[1], lanes=["tensorflow", KERAS])
def test_keras(fwbench_measure):
    fwbench_measure()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by-hand", action="store_true")
    parser.add_argument("--lane", help="in the environment of a lane's worker: print its ratios as JSON")
    options = parser.parse_args()
    if options.lane:
        print(json.dumps(ratios(options.lane)))
        return
    run = None if options.by_hand else measured()
    hand = by_hand()
    if run is None:
        print(hand)
    else:
        PAGE.write_text(page(run, hand))


def measured() -> str:
    """Measure; return what the run prints."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        describe(project)
        speed = SPEED
        for placeholder, names in (("MODELS", MODELS), ("LANES", DERIVED), ("KERAS", KERAS)):
            speed = speed.replace(placeholder, ", ".join(map(repr, names)))
        (project / "test_speed.py").write_text(speed)
        (project / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
        command = [sys.executable, "-m", "pytest", "-v", "--benchmark-only", "--benchmark-quiet"]
        command.append(f"--fwbench-minutes={MINUTES}")
        variables = {**os.environ, "COLUMNS": "200"}
        done = subprocess.run(command, cwd=project, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def describe(project: Path) -> None:
    """Write the modules of docs/your-model.md, and BERT, into a folder."""
    page = (HERE.parent / "your-model.md").read_text()
    blocks = re.findall(r"```python\n# mine/(\w+\.py)\n(.*?)```", page, re.DOTALL)
    (project / "mine").mkdir()
    for name, text in (*blocks, ("bert.py", BERT)):
        if name in ("torch_net.py", "jax_net.py", "keras_net.py", "attention.py", "bert.py"):
            (project / "mine" / name).write_text(text)


def by_hand() -> str:
    """The second table: the time of each lane's call over that of a plain call."""
    rows = {}
    for name in (*DERIVED, *KERAS):
        variables = environment(dict(os.environ), len(os.sched_getaffinity(0)), "cpu", LANES[name])
        command = [sys.executable, __file__, "--lane", name]
        done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
        rows[name] = json.loads(done.stdout.splitlines()[-1])
    lines = [f"| model | {' | '.join(rows)} |", f"|---|{'--:|' * len(rows)}"]
    for model in (*MODELS, "tinynext"):
        cells = (f"{of[model]:.3f}" if model in of else "-" for of in rows.values())
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines)


def ratios(name: str) -> dict[str, float]:
    """Measure in this process, for each model, the time of the lane's call over that of a plain call."""
    from fwbench import frameworks
    from fwbench.models.weights import canonical

    models, by_model = [CATALOG[model] for model in MODELS], {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ[EXPORTS] = folder
        if name in KERAS:
            describe(Path(folder))
            sys.path.insert(0, folder)
            network = "mine.keras_net:TinyNext"
            models = [fwbench.Model("tinynext", tensorflow=network, inputs=fwbench.image(32, 32, 3))]
        framework = frameworks.load(LANES[name].adapter)
        framework.preload(name)
        for model in models:
            workload = Workload(name, model.name, "inference", 1)
            shapes = framework.weight_shapes(model, model.sizes())
            program: Any = framework.build(workload, model, canonical("drawn", model, shapes, 0))
            with program.session():
                program.compile()
            plain = PLAIN[name](program)
            by_model[model.name] = median(turn(program) / timed(plain) for _ in range(TURNS))
    return by_model


def turn(program: Any) -> float:
    """The median time of the lane's calls in a turn; each call is waited for."""

    def call() -> None:
        program.step()
        program.wait()

    with program.session():
        return timed(call)


def timed(call: Callable[[], Any]) -> float:
    """The median time of a turn's calls."""
    time.sleep(PAUSE)
    call()
    times: list[float] = []
    while (len(times) < CALLS or sum(times) < SHORTEST) and sum(times) < LONGEST:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times)


def _onnxruntime(program: Any) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    session = onnxruntime.InferenceSession(
        program.folder / "exported" / "model.onnx", options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, program.inputs)


def _openvino(program: Any) -> Callable[[], Any]:
    import openvino

    threads = {"INFERENCE_NUM_THREADS": os.environ["OMP_NUM_THREADS"], "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(program.folder / "exported" / "model.xml", "CPU", threads)
    return lambda: compiled(program.inputs)


def _torch_aoti(program: Any) -> Callable[[], Any]:
    import torch

    model = torch._inductor.aoti_load_package(str(program.folder / "exported" / "model.pt2"))
    tensors = [torch.from_numpy(array) for array in program.inputs.values()]

    def call() -> Any:
        with torch.inference_mode():
            return model(*tensors)

    return call


def _torchax(program: Any) -> Callable[[], Any]:
    """Call the module itself on JAX, as torchax's documentation writes no files."""
    import jax
    import torchax

    from fwbench.frameworks.torch.networks import load_weights, network

    request = json.loads((program.folder / "request.json").read_text())
    module = network(Model.from_json(request["model"]), request["sizes"])
    with np.load(program.folder / "weights.npz") as drawn:
        load_weights(module, drawn)
    weights, function = torchax.extract_jax(module.eval())
    arrays, jitted = jax.device_put(tuple(program.inputs.values())), jax.jit(function)
    return lambda: jitted(weights, arrays).block_until_ready()


def _keras(program: Any) -> Callable[[], Any]:
    """Call a second object of the network's class, as Keras's own program takes over the variables of a module."""
    import keras

    module = type(program.network.module)()
    module.compile(jit_compile=True)
    batch = keras.ops.convert_to_numpy(next(iter(program.inputs.values())))
    return lambda: module.predict_on_batch(batch)


PLAIN = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "torch-aoti": _torch_aoti,
    "torchax": _torchax,
    "keras-jax": _keras,
    "keras-torch": _keras,
}


def page(run: str, hand: str) -> str:
    """Both tables as Markdown."""
    here = machine()
    # The answers and the table, which begin below the summary's title, and the notes.
    end = run.partition(" profile on ")[2].partition("\n")[2].partition("\njournal: ")[0]
    return f"""# The lanes for deployment

Made by `python docs/evidence/deployment.py` with fwbench {fwbench.__version__}:
{here.cpu}, {here.threads} cores.

## A run

Inference of nine models at batch 1, with `--fwbench-minutes={MINUTES}`.

```text
{end.strip()}
```

## Beside a plain call

The time of the lane's call over that of the plain call in the runtime's own documentation. The two take turns. The
plain call runs the same files; for torchax it runs the module that was exported, and for Keras it is
`predict_on_batch` with `jit_compile=True`.

{hand}
"""


if __name__ == "__main__":
    main()

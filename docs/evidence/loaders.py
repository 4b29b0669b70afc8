"""fwbench's loader beside PyTorch's DataLoader, Grain and Python's executors, on JPEG files of ImageNet's size.

    python docs/evidence/loaders.py            # writes both tables in loaders.md, about six minutes

Needs fwbench[data,torch], JAX and grain 0.2.18. Every candidate calls the same reader and is told which samples make a
batch, and in which order. Each figure comes from a fresh process, the candidates by turns; CPU time and memory are
those of the whole tree of processes.
"""

import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fwbench import units
from fwbench.ext.epochs.data import DataError, digest, transforms
from fwbench.ext.epochs.data.loaders import Loaders
from fwbench.machine.load import family, family_time

HERE = Path(__file__).resolve()
FOUND = HERE.with_suffix(".json")
PAGE = HERE.with_name("loaders.md")
BEGIN, END = "<!-- loaders: begin -->", "<!-- loaders: end -->"

SIZE, BATCH, PREFETCH = 224, 32, 3
IMAGES, PASSES = 192, 5
# The clock runs from batch to batch; before and after, as many are being read as in between.
FIRST, LAST = 3, 13
REPEATS = 3
# A trial that takes longer is not waited for.
PATIENCE = 30.0
LIBRARIES = {"PyTorch": "libtorch_cpu", "JAX": "libjax_common"}

Key = tuple[int, int]  # epoch, index
Batches = Sequence[Sequence[Key]]


@dataclass(frozen=True)
class Reader:
    """Decodes, crops, resizes and mirrors as fwbench does; an index in `stuck` is never read."""

    files: tuple[str, ...]
    stuck: int | None = None

    def __call__(self, split: str, epoch: int, index: int) -> NDArray[np.float32]:
        while index == self.stuck:
            time.sleep(1)
        try:
            image = Image.open(self.files[index]).convert("RGB")
        except OSError as error:
            raise DataError(f"{self.files[index]} cannot be decoded: {error}") from error
        return transforms.train(image, SIZE, np.random.default_rng([0, epoch, index]))

    def __getitem__(self, key: Key) -> NDArray[np.float32]:
        return self("train", *key)


@dataclass(frozen=True)
class Source:
    """What Grain reads from: the samples of all batches, one after the other."""

    read: Reader
    keys: tuple[Key, ...]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, position: int) -> NDArray[np.float32]:
        return self.read[self.keys[position]]


class Candidate:
    """A loader at work: `batches` are NumPy arrays in the order asked for."""

    batches: Iterator[NDArray[np.float32]]

    def close(self) -> None:
        """End its processes or threads."""


class Ours(Candidate):
    def __init__(self, read: Reader, batches: Batches, processes: int) -> None:
        self.loaders = Loaders("jpegs", read, processes, (BATCH, SIZE, SIZE, 3), PREFETCH)
        self.batches = self._all(batches)

    def _all(self, batches: Batches) -> Iterator[NDArray[np.float32]]:
        for epoch in sorted({keys[0][0] for keys in batches}):
            plan = [np.array([index for _, index in keys]) for keys in batches if keys[0][0] == epoch]
            yield from self.loaders.images("train", epoch, plan)

    def close(self) -> None:
        self.loaders.close()


class PyTorch(Candidate):
    """Its processes are spawned, as JAX's threads survive no fork; arrays become tensors in shared memory."""

    def __init__(self, read: Reader, batches: Batches, processes: int) -> None:
        from torch.utils.data import DataLoader

        loader = DataLoader(
            read,  # type: ignore[arg-type]  # It has __getitem__, which is all that is used.
            batch_sampler=batches,
            num_workers=processes,
            prefetch_factor=max(2, PREFETCH // processes),
            persistent_workers=True,
            multiprocessing_context="spawn",
        )
        self.iterator = iter(loader)
        self.batches = (batch.numpy() for batch in self.iterator)

    def close(self) -> None:
        self.iterator._shutdown_workers()


class Grain(Candidate):
    """Batches are made before the data is divided among the processes, so that their number changes none."""

    def __init__(self, read: Reader, batches: Batches, processes: int) -> None:
        import grain
        from absl import flags

        # Or it raises UnparsedFlagAccessError: it expects a program that absl started.
        flags.FLAGS.mark_as_parsed()
        options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
        several = grain.multiprocessing.MultiprocessingOptions(processes, max(1, PREFETCH // processes))
        source = grain.MapDataset.source(Source(read, tuple(key for keys in batches for key in keys)))
        self.batches = iter(source.batch(BATCH).to_iter_dataset(options).mp_prefetch(several))

    def close(self) -> None:
        self.batches.close()


class GrainThreads(Candidate):
    def __init__(self, read: Reader, batches: Batches, processes: int) -> None:
        import grain

        options = grain.ReadOptions(num_threads=processes, prefetch_buffer_size=PREFETCH * BATCH)
        source = grain.MapDataset.source(Source(read, tuple(key for keys in batches for key in keys)))
        self.batches = iter(source.to_iter_dataset(options).batch(BATCH))

    def close(self) -> None:
        self.batches.close()


class Pool(Candidate):
    """An executor of Python's own, asked for some batches ahead."""

    def __init__(self, executor: Executor, parts: int, read: Reader, batches: Batches) -> None:
        self.executor = executor
        self.batches = self._all(read, parts, batches)

    def _all(self, read: Reader, parts: int, batches: Batches) -> Iterator[NDArray[np.float32]]:
        ahead, entries = [], iter(batches)
        while True:
            while len(ahead) < PREFETCH and (keys := next(entries, None)):
                ahead.append([self.executor.submit(stack, read, keys[part::parts]) for part in range(parts)])
            if not ahead:
                return
            done = [part.result() for part in ahead.pop(0)]
            batch = np.empty((BATCH, SIZE, SIZE, 3), np.float32)
            for part, samples in enumerate(done):
                batch[part::parts] = samples
            yield batch

    def close(self) -> None:
        self.executor.shutdown(cancel_futures=True)


def stack(read: Reader, keys: Sequence[Key]) -> NDArray[np.float32]:
    return np.stack([read[key] for key in keys])


def processes_of_python(read: Reader, batches: Batches, processes: int) -> Candidate:
    return Pool(ProcessPoolExecutor(processes, get_context("spawn")), processes, read, batches)


def threads_of_python(read: Reader, batches: Batches, processes: int) -> Candidate:
    return Pool(ThreadPoolExecutor(processes), processes, read, batches)


CANDIDATES: dict[str, Callable[[Reader, Batches, int], Candidate]] = {
    "fwbench": Ours,
    "PyTorch DataLoader": PyTorch,
    "Grain, processes": Grain,
    "Grain, threads": GrainThreads,
    "ProcessPoolExecutor": processes_of_python,
    "ThreadPoolExecutor": threads_of_python,
}


def plan(passes: int = PASSES, images: int = IMAGES) -> list[list[Key]]:
    order = [
        (epoch, int(index)) for epoch in range(passes) for index in np.random.default_rng(epoch).permutation(images)
    ]
    return [order[start : start + BATCH] for start in range(0, len(order), BATCH)]


def write_images(folder: Path) -> None:
    """Parts of scikit-learn's photographs in sizes like ImageNet's: mostly 500 x 375, about 100 kB."""
    from sklearn.datasets import load_sample_images

    photographs = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    rng = random.Random(0)
    for number in range(IMAGES):
        whole = photographs[number % 2]
        share = rng.uniform(0.6, 1)
        width, height = int(whole.width * share), int(whole.height * share)
        left, top = rng.randint(0, whole.width - width), rng.randint(0, whole.height - height)
        size = rng.choice([(500, 375), (500, 375), (500, 333), (375, 500), (640, 480)])
        part = whole.crop((left, top, left + width, top + height)).resize(size, Image.Resampling.LANCZOS)
        part.save(folder / f"{number:04}.jpg", quality=95)


def memory(process: int) -> int:
    """Bytes of a process; what several share is divided among them."""
    (kibibytes,) = re.findall(r"^Pss: +(\d+)", Path(f"/proc/{process}/smaps_rollup").read_text(), re.M)
    return int(kibibytes) * 1024


def readers() -> list[int]:
    """Child processes that read: not multiprocessing's tracker of resources."""
    return [pid for pid in family() if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def step() -> float:
    """A consumer's step that keeps the interpreter busy, as dispatching small operators does.

    Returns:
        The time for which others kept the interpreter's lock from it, over its own CPU time. The time for which other
        processes kept the CPU from it does not count.
    """
    begun, own, queued = time.perf_counter(), time.thread_time(), waiting_for_a_cpu()
    x = np.ones(64, np.float32)
    for _ in range(20_000):
        x = x * 0.5 + 0.5
    wall, own, queued = time.perf_counter() - begun, time.thread_time() - own, waiting_for_a_cpu() - queued
    return max(0.0, wall - own - queued) / own


def waiting_for_a_cpu() -> float:
    """Seconds for which this thread could have run, and no CPU was free (proc_pid_schedstat(5))."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def measure(folder: Path, name: str, processes: int) -> dict[str, float]:
    read = Reader(tuple(sorted(map(str, folder.glob("*.jpg")))))
    # Its consumer has the library imported, whoever's process that is.
    {"P": lambda: __import__("torch.utils.data"), "G": lambda: __import__("grain")}.get(name[0], int)()
    before = sum(map(memory, family()))
    begun = time.perf_counter()
    candidate = CANDIDATES[name](read, plan(), processes)
    next(candidate.batches)
    first = time.perf_counter() - begun
    for _ in range(1, FIRST):
        next(candidate.batches)
    begun, cpu = time.perf_counter(), family_time()
    for _ in range(FIRST, LAST):
        next(candidate.batches)
    cpu, wall = family_time() - cpu, time.perf_counter() - begun
    grown = sum(map(memory, family())) - before
    # Until here the consumer only waited; now it computes. The first batches were read while memory was.
    steps = []
    for _ in range(2 * PREFETCH):
        next(candidate.batches)
        steps.append(step())
    candidate.close()
    samples = (LAST - FIRST) * BATCH
    return {
        "rate": samples / wall,
        "cpu": cpu / samples,
        "first": first,
        "memory": grown,
        "step": statistics.median(steps[PREFETCH:]),
    }


def hears(call: Callable[[], object]) -> tuple[float, str]:
    """Seconds until a call raises, and what; it is not waited for longer than PATIENCE."""
    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    begun = time.perf_counter()
    try:
        call()
        heard = "nothing raised"
    except GaveUpError:
        heard = "hangs"
    except Exception as error:
        heard = f"{type(error).__name__}: {error}"
    signal.setitimer(signal.ITIMER_REAL, 0)
    return time.perf_counter() - begun, heard


class GaveUpError(BaseException):
    """What is tried takes too long."""


def give_up(*_: object) -> None:
    raise GaveUpError


def trial(folder: Path, name: str, what: str) -> dict[str, object]:
    """One guarantee of one candidate, as found."""
    files = tuple(sorted(map(str, folder.glob("*.jpg"))))
    read, batches, make = Reader(files), plan(), CANDIDATES[name]
    result: dict[str, object] = {}
    if what == "equal":
        expected = digest([(stack(read, keys),) for keys in batches[:8]])
        for processes in (1, 2, 3):
            candidate = make(read, batches[:8], processes)
            result[str(processes)] = digest((batch,) for batch in candidate.batches) == expected
            candidate.close()
    elif what == "resumed":
        # From the third batch of the second pass.
        candidate = make(read, batches[8:12], 2)
        result["same"] = digest((batch,) for batch in candidate.batches) == digest(
            [(stack(read, keys),) for keys in batches[8:12]]
        )
        candidate.close()
    elif what == "killed":
        candidate = make(read, batches, 2)
        next(candidate.batches)
        if not readers():
            return {}
        os.kill(readers()[0], signal.SIGKILL)
        result["seconds"], result["message"] = hears(lambda: list(candidate.batches))
    elif what == "corrupt":
        bad = folder / "bad"
        bad.write_bytes(Path(files[7]).read_bytes()[:5000])
        candidate = make(Reader((*files[:7], str(bad), *files[8:])), batches, 2)
        result["seconds"], result["message"] = hears(lambda: list(candidate.batches))
        result["named"] = str(bad) in str(result["message"])
        result["lines"] = str(result["message"]).count("\n") + 1
        del result["message"]
    elif what == "stuck":
        candidate = make(Reader(files, stuck=batches[3][5][1]), batches, 2)
        for _ in range(2):
            next(candidate.batches)
        time.sleep(1)
        result["seconds"], result["message"] = hears(candidate.close)
        result["left"] = len(readers())
    elif what == "child":
        candidate = make(read, batches, 1)
        next(candidate.batches)
        for pid in readers():
            result["bytes"] = memory(pid)
            maps = Path(f"/proc/{pid}/maps").read_text()
            result["libraries"] = [name for name, file in LIBRARIES.items() if file in maps]
        candidate.close()
    elif what == "orphans":
        candidate = make(read, batches, 2)
        next(candidate.batches)
        print(json.dumps(readers()), flush=True)
        time.sleep(600)
    return result


TRIALS = ("equal", "resumed", "killed", "corrupt", "stuck", "child")


def fresh(*arguments: str) -> dict[str, object]:
    """What this script prints, called with these arguments; its processes end with it."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            # Not until the end of the file: readers that are left behind hold the pipe.
            for line in process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
            errors.seek(0)
            raise RuntimeError(f"{arguments}: {errors.read()[-2000:]}")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()


def orphans(folder: str, name: str) -> dict[str, object]:
    """Seconds that a consumer's readers outlive its being killed."""
    command = [sys.executable, __file__, "trial", folder, name, "orphans"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        pids = json.loads(process.stdout.readline())
        process.kill()
    begun = time.perf_counter()
    left = pids
    while left and time.perf_counter() - begun < PATIENCE:
        time.sleep(0.02)
        left = [pid for pid in left if Path(f"/proc/{pid}").exists()]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return {"seconds": time.perf_counter() - begun, "left": len(left), "of": len(pids)}


def speeds(folder: str) -> list[dict[str, object]]:
    rows = []
    for repeat in range(REPEATS):
        for processes in (1, 2):
            for name in CANDIDATES:
                row = {"repeat": repeat, "processes": processes, "name": name}
                rows.append(row | fresh("measure", folder, name, str(processes)))
    return rows


def trials(folder: str) -> dict[str, dict[str, object]]:
    return {
        name: {what: fresh("trial", folder, name, what) for what in TRIALS} | {"orphans": orphans(folder, name)}
        for name in CANDIDATES
    }


def speed_table(rows: Sequence[dict[str, object]]) -> list[str]:
    """Medians over the repeats; of the others the ratio to fwbench's figure in the same repeat.

    A column that was not measured, as other work on the machine falsifies all times but those of the CPU, is left out.
    """
    columns = {
        "rate": ("samples/s", units.rate),
        "cpu": ("CPU time per sample", units.seconds),
        "first": ("first batch", units.seconds),
        "memory": ("memory", units.size),
        "step": ("the lock adds to a step", "{:+.0%}".format),
    }
    columns = {field: column for field, column in columns.items() if field in rows[0]}
    names = " | ".join(name for name, _ in columns.values())
    lines = [f"| loader | processes or threads | {names} |", "| --- " + "| ---: " * (1 + len(columns)) + "|"]
    for processes in (1, 2):
        of = {
            name: [row for row in rows if (row["name"], row["processes"]) == (name, processes)] for name in CANDIDATES
        }
        ours = of["fwbench"]
        for name, found in of.items():
            cells = [name, str(processes)]
            for field, (_, show) in columns.items():
                own = [row[field] for row in found]
                if found is ours or field == "step":
                    cells.append(show(statistics.median(own)))
                else:
                    ratios = (value / row[field] for value, row in zip(own, ours, strict=True))
                    cells.append(units.ratio(statistics.median(ratios)))
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def trial_table(found: dict[str, dict[str, dict[str, object]]]) -> list[str]:
    lines = [
        "| loader | same bits with 1, 2 and 3 | a killed process: raises after | a corrupt file "
        "| `close` while one is stuck | after the consumer is killed | a loader process holds |",
        "| --- " * 7 + "|",
    ]
    for name, of in found.items():
        killed, corrupt, stuck, orphaned, child = (
            of[what] for what in ("killed", "corrupt", "stuck", "orphans", "child")
        )
        same = all(of["equal"].values()) and of["resumed"]["same"]
        cause = re.search(r"SIGKILL|signal: Killed|code -9", str(killed.get("message")))
        lines_told = corrupt["lines"]
        told = f"named, in {'one sentence' if lines_told == 1 else f'{lines_told} lines of traceback'}"
        ended = "hangs" if stuck["message"] == "hangs" else f"{stuck['seconds']:.1f} s"
        left = f"{orphaned['left']} of {orphaned['of']} live on" if orphaned["left"] else f"{orphaned['seconds']:.1f} s"
        cells = [
            name,
            "yes" if same else "no",
            f"{killed['seconds']:.1f} s, {'says how' if cause else 'not how'}" if killed else "-",
            told if corrupt["named"] else "not named",
            ended,
            left if orphaned["of"] else "-",
            ", ".join([units.size(child["bytes"]), *child["libraries"]]) if child else "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "command", nargs="?", choices=("all", "speed", "trials", "page", "measure", "trial"), default="all"
    )
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    if options.command in ("measure", "trial"):
        folder, name, what = options.arguments
        made = (
            measure(Path(folder), name, int(what)) if options.command == "measure" else trial(Path(folder), name, what)
        )
        print(json.dumps(made), flush=True)
        # Some candidates' processes would keep this one from ending.
        os._exit(0)
    found = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder))
        if options.command in ("all", "speed"):
            found["speed"] = speeds(folder)
        if options.command in ("all", "trials"):
            found["trials"] = trials(folder)
    FOUND.write_text(json.dumps(found, indent=1) + "\n")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = "\n".join([*speed_table(found["speed"]), "", *trial_table(found["trials"])])
    PAGE.write_text(f"{before}{BEGIN}\n{tables}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()

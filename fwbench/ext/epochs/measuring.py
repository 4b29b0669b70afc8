"""Training for whole epochs, and the accuracy after it."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from fwbench.ext.epochs.data import Data, open_data
from fwbench.ext.epochs.data import digest as batches_digest
from fwbench.ext.epochs.loop import Epochs, fitting, resolved
from fwbench.frameworks.contract import Framework, Trainer
from fwbench.machine.holes import Watch
from fwbench.machine.load import OtherLoad
from fwbench.meters.memory import memory
from fwbench.record.measurement import Failure, Pass
from fwbench.worker.process.building import build
from fwbench.worker.process.checks import aim, fingerprint, sketch
from fwbench.worker.process.facts import counter_period, probe
from fwbench.worker.process.job import Job
from fwbench.worker.process.passes import measure_program, record_compilation

# Training batches whose digest is recorded, which proves that two lanes saw the same data.
_DIGESTED = 2


@contextmanager
def opened(job: Job) -> Iterator[Callable[[Framework], Failure | None]]:
    """Hold the workload's data open for a function that trains for its epochs, then tests.

    The function returns the failure if that is impossible.
    """
    workload = job.workload
    with job.stage("data"):
        data = open_data(workload.data, job.model, path=workload.data_path, seed=workload.seed)
    with data:
        yield lambda framework: _measured(job, framework, data)


def _measured(job: Job, framework: Framework, data: Data) -> Failure | None:
    workload = job.workload
    with job.stage("data"):
        job.training["batches"] = batches_digest(islice(data.batches("train", workload.batch_size), _DIGESTED))
    steps = data.sizes["train"] // workload.batch_size
    with job.building():
        program = build(job, framework, steps * workload.epochs)
    assert isinstance(program, Trainer)
    if workload.target:
        return aim(job, program, workload.target)
    with program.session():
        if job.protocol.programs:
            measure_program(job, framework, program)
        else:
            _fit(job, framework, program, data)
    return None


def _fit(job: Job, framework: Framework, program: Trainer, data: Data) -> None:
    workload = job.workload
    probe(job, framework)
    if job.protocol.smoke:
        with job.stage("training"):
            program.compile()
            program.call_and_wait()
        return
    meter = job.counter()
    with job.stage("energy"):
        moves = job.metrics["energy_period"] = counter_period(job, meter)
    epochs = Epochs(program, data, workload.batch_size, job.clock, None if isinstance(meter, str) else meter)
    job.waited()
    job.note("before training")
    load, watch = OtherLoad(), Watch(clock=job.clock)
    with job.stage("training"):
        train = functools.partial(_train, job, program, epochs, watch)
        job.metrics.update(memory(program, workload.device, train, number=job.gpu, count=job.gpus))
    job.metrics["other_load"] = load.read()
    job.passes["training"] = Pass("training", **watch.read())
    job.note("after training", timed=True)
    with job.stage("test"):
        tested = epochs.test()
    training = epochs.training
    job.samples = [epoch.seconds for epoch in training.epochs]
    job.metrics.update(fitting(training.epochs, tested, meter, moves))
    training.epochs = [resolved(epoch, moves) for epoch in training.epochs]
    job.training |= dataclasses.asdict(training)
    sketch(job, program, feed=lambda: program.feed(*next(iter(data.batches("train", workload.batch_size)))))
    fingerprint(job, program)


def _train(job: Job, program: Trainer, epochs: Epochs, watch: Watch) -> None:
    watch.lap(0)
    for number in range(job.workload.epochs):
        job.tell(f"training, epoch {number + 1}")
        with job.compiling(program, "steady" if number else "warm-up"):
            if number == 0:
                epochs.run(lambda: record_compilation(job, program.compile()))
            else:
                epochs.run()
        watch.lap(1)

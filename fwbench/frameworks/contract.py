"""The contract between a framework's adapter and the worker: build a workload, and run the program that results."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.faults import first_line, is_out_of_memory
from fwbench.frameworks.precision import Operands, Products
from fwbench.frameworks.training import HORIZON
from fwbench.models import Model
from fwbench.models.weights import Shape, Weights
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Metric, unavailable
from fwbench.record.spans import Span
from fwbench.record.workload import Workload

# A call, and the name of the library that does the work.
Offered = tuple[Callable[[], Any], str]


class LostError(OSError):
    """Another rank is gone, or has stopped for a reason that it reports itself."""


class Ranks(ABC):
    """The processes that run one program together, as one of them sees them (the terms are MPI's).

    Attributes:
        rank: this process's number, from 0; the first one leads.
        size: number of processes.
        local: this process's number among those on this host, from 0.
        address: `host:port` at which the first rank's framework may listen for the others.
    """

    rank: int
    size: int
    local: int
    address: str

    @abstractmethod
    def agree(self, value: float) -> float:
        """Return the first rank's value in all ranks; every rank calls this, and none returns before all have.

        Raises:
            LostError: another rank is gone, as `gather` does.
        """

    @abstractmethod
    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value (JSON) in the order of the ranks; every rank calls this."""


@dataclass(frozen=True)
class CompileTimes:
    """Seconds from a built program to one that is ready for its first call.

    Attributes:
        trace: Python to the compiler's input (JAX: trace and lower; PyTorch: Dynamo and AOT autograd's share).
        compile: the compiler's input to machine code.
        reason: why both are None: nothing is compiled, or the framework does not separate them.
        total: of everything that a user waits for; None: the time that `Program.compile` took.
    """

    trace: float | None
    compile: float | None
    reason: str | None = None
    total: float | None = None


class Program(ABC):
    """A workload that is ready to run: weights and batch lie on the device.

    `settings` records how the lane runs the program: the fast path that it chose, and after `fingerprint` the outcome.
    """

    settings: Mapping[str, Any]
    # The processes that run the program together; None: this one alone.
    ranks: Ranks | None = None
    # The reason why nothing tells the memory of the device.
    no_allocator = "the program runs on the CPU, which has no such allocator"

    def agree(self, value: float) -> float:
        """Return the first rank's value in all ranks; in a program of one process, the value itself.

        Called wherever a clock decides the number of calls, as the ranks would otherwise make different numbers. Every
        rank calls it, and none returns before all have called.
        """
        return self.ranks.agree(value) if self.ranks else value

    def share(self, array: NDArray[Any]) -> NDArray[Any]:
        """This rank's equal slice of an array of samples; in a program of one process the whole array."""
        if self.ranks is None:
            return array
        samples = len(array) // self.ranks.size
        return array[self.ranks.rank * samples : (self.ranks.rank + 1) * samples]

    def session(self) -> AbstractContextManager[Any]:
        """The context in which all steps run; entered once, as a serving loop does, so it is no part of a call."""
        return nullcontext()

    @abstractmethod
    def compile(self) -> CompileTimes:
        """Make the program ready for its first call; return the seconds it took. Called once, before any step."""

    @abstractmethod
    def step(self) -> None:
        """Enqueue one call. May return before the device is done."""

    @abstractmethod
    def wait(self) -> None:
        """Return once the device has finished every call enqueued since the last wait."""

    def call_and_wait(self) -> None:
        """Make one call, and wait for its end."""
        self.step()
        self.wait()

    @abstractmethod
    def output(self) -> NDArray[Any]:
        """The last call's output on the host, logits of shape (batch_size, classes) in float32 or wider."""

    @abstractmethod
    def weights(self) -> Weights:
        """The program's weights in canonical form, read back from the device."""

    @abstractmethod
    def relocate(self) -> None:
        """Copy everything on the device to fresh memory, so that the next steps run in another layout.

        Called between sessions. Compiled code stays.
        """

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        """Restart from these weights, as right after the build, with the compiled code.

        An optimizer's state is zero and the next step is its first one. Called within a session, when all timing is
        over.

        Args:
            weights: in canonical form; those of the build or others of their shapes. An array may be made only when it
                is asked for.
            draw: selects the random numbers of random layers in the next steps; 0: those after the build.

        Raises:
            NotImplementedError: the lane cannot restart, so nothing can check the results of its training steps.
        """
        raise NotImplementedError

    def gradients(self) -> Mapping[str, NDArray[Any]] | None:
        """The gradient of each trained parameter in the first step since `restart`, in canonical form.

        Called right after that step, on a program that trains. It is computed from the optimizer's first moment.

        Returns:
            None if the lane cannot compute it.
        """
        return None

    def state_memory(self) -> Metric | None:
        """Bytes of the state that a call takes and returns; None for a program without a state."""
        return None

    def reset_peak_memory(self) -> None:  # noqa: B027 (a default, not an obligation)
        """Reset the device allocator's peak, if it can be reset."""

    def peak_memory(self) -> Metric:
        """Peak of the device allocator in bytes since the reset, or since the build if it cannot be reset."""
        return unavailable("device allocator", self.no_allocator)

    def peak_memories(self) -> list[Metric]:
        """The peak of each of this process's devices; `peak_memory` is the largest of them."""
        return [self.peak_memory()]

    def memory_in_use(self) -> Metric:
        """Bytes that the device allocator has given out now."""
        return unavailable("device allocator", self.no_allocator)

    def exported_size(self) -> Metric | None:
        """Bytes of the files that the program was loaded from; None if the lane exports nothing."""
        return None

    def program_memory(self) -> Metric:
        """Bytes the compiled program needs, as reported by the compiler."""
        return unavailable("compiler", "the lane has no compiler that reports it")

    def communication(self) -> Metric:
        """Seconds per step in which devices exchange gradients, by the framework's profiler. Makes some steps."""
        return unavailable("profiler", "the lane's profiler does not tell it")

    def compilations(self) -> int | None:
        """The number of compilations in this process so far; None in a lane that compiles nothing."""
        return None

    def fingerprint(self) -> Fingerprint:
        """The program's fingerprint. Called last; may make another step."""
        return Fingerprint.untold("the lane has no program that could be described")

    def spans(self, calls: int) -> list[Span] | None:
        """Make calls under the framework's profiler; return its spans, with one of kind `call` around each call.

        Returns:
            None if the lane has no profiler.
        """
        return None

    def forward_flops(self) -> float | None:
        """Floating-point operations of a forward pass over the batch, counted in the program as it is traced.

        Counts two for each multiply-accumulate of matrix products, convolutions and attention, and nothing else. A
        training program's backward pass does not count, nor do operations repeated in it. Called after `fingerprint`.

        Returns:
            None if the lane cannot count them.
        """
        return None

    def fingerprint_for(self, target: str) -> Fingerprint | str:
        """The fingerprint for a GPU that this machine lacks, or the reason why there is none, as one sentence.

        Runs nothing. Called in place of `compile` and all other methods, on a program that was built on the CPU.

        Args:
            target: a name in `fwbench.machine.targets.NAMES`.
        """
        return "the lane cannot compile for a device that is not here"


@runtime_checkable
class Rotating(Protocol):
    """A program whose calls can take several batches in turn, which exposes a network that remembers outputs."""

    def rotate(self, batches: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        """Let the next calls of a forward pass take these batches in turn, the first one first, each in new memory.

        Called between calls, within a session or before it, with batches of the build's shapes. Compiled code stays.
        """


@dataclass(frozen=True)
class Scores:
    """Mean cross-entropy of a split, and the shares of its samples whose label ranks first or among the first five."""

    loss: float
    top1: float
    top5: float

    @classmethod
    def of(cls, totals: Iterable[Iterable[float]]) -> "Scores":
        """Combine the batches' sums over samples: loss, top-1 hits, top-5 hits, number of samples."""
        loss, top1, top5, samples = (sum(column) for column in zip(*totals, strict=True))
        return cls(loss / samples, top1 / samples, top5 / samples)


class Trainer(Program):
    """A program whose step is an optimizer step on a batch that can be exchanged; `output` is its loss."""

    @abstractmethod
    def feed(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        """Give the following steps this batch, of the shape that the program was built for."""

    @abstractmethod
    def curve(self) -> list[tuple[float, float]]:
        """Mean loss and number of top-1 hits of each step since the last call; in mode `fit` alone."""

    @abstractmethod
    def score(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        """Enqueue the evaluation of a batch, in inference mode; labels of -1 mark samples to leave out."""

    @abstractmethod
    def scores(self) -> Scores:
        """The scores over all batches since the last call."""


class Framework(ABC):
    """An adapter, constructed without touching a device."""

    # The processes that run the program together; None: this one alone.
    ranks: Ranks | None = None
    # True if its programs can take a list of sizes in turn (`fwbench.models.mixed`).
    mixes = False

    def join(self, ranks: Ranks) -> None:
        """Make this process one of several that run a program; called before anything touches a device.

        Raises:
            OSError: the ranks do not find each other; one sentence.
        """
        raise NotImplementedError("the framework runs no program in several processes")

    def leave(self) -> None:  # noqa: B027 (a default, not an obligation)
        """Undo `join`; called last, in every rank."""

    @abstractmethod
    def unavailable(self, workload: Workload, model: Model) -> str | None:
        """The reason why this machine and interpreter cannot run the workload, as one sentence; None if they can."""

    def refusal(self, workload: Workload, model: Model) -> str | None:
        """As `unavailable`, which need not know of lists of sizes."""
        if len(workload.each) > 1:
            if not self.mixes:
                return f"the lane {workload.lane} takes no list of sizes: measure each size by itself"
            if workload.mode != "inference":
                return f"a list of sizes is measured in inference, and not in {workload.mode}"
            if workload.devices > 1 or workload.target or workload.call == "module":
                return "a list of sizes runs on one device of this machine, and not with call=module"
        return self.unavailable(workload, model)

    @abstractmethod
    def weight_shapes(self, model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        """The canonical shape of every tensor of the model's state, by canonical name; empty for a plain function.

        Args:
            sizes: sizes of the model's axes.

        Raises:
            ModelError: its network cannot be built as it is described.
        """

    def initial(self, model: Model, sizes: Mapping[str, int], seed: int) -> Weights:
        """The values that the network's own constructor sets, in canonical form.

        Args:
            sizes: sizes of the model's axes.
            seed: seed of the random numbers that the constructor draws.

        Raises:
            ModelError: its network cannot be built as it is described.
            NotImplementedError: the framework cannot return them.
        """
        raise NotImplementedError("the framework does not tell a network's initial values")

    @abstractmethod
    def build(self, workload: Workload, model: Model, weights: Weights, horizon: int = HORIZON) -> Program:
        """Build the model with these canonical weights and place it and the batch on the device.

        Sets the workload's precision for the whole process. In the training modes the learning rate falls to zero over
        `horizon` steps; in mode `fit` the program is a `Trainer`.

        Raises:
            ModelError: the network cannot be built or run as it is described; a weight is missing, unknown or of
                another shape.
        """

    def in_force(self, workload: Workload) -> Mapping[str, Any]:
        """The framework's settings that are in force now and change the time of a call, by name, as JSON primitives.

        A worker compares those before the build with those after all timing, as a network's own code may change some.
        """
        return {}

    def chosen(self, workload: Workload) -> Mapping[str, Any]:
        """Those of the settings in force that `build` will set for the workload, with the values that it will set."""
        return {}

    @abstractmethod
    def probe(self, workload: Workload, operands: Operands) -> Products:
        """Compute the precision probe as the workload's lane computes, after a build has set its precision."""

    def matrix_product(
        self, workload: Workload, left: NDArray[np.float32], right: NDArray[np.float32]
    ) -> Offered | None:
        """A function that multiplies two matrices in the workload's precision, as the lane does in a network.

        Called after a build, as are `convolution` and `copy`. The call waits for its result and returns it; nothing but
        the work itself may take time in it.

        Returns:
            None if the lane has no such function; it then takes no part in measuring the machine's ceilings.
        """
        return None

    def convolution(
        self, workload: Workload, images: NDArray[np.float32], kernel: NDArray[np.float32]
    ) -> Offered | None:
        """A function that convolves images (NHWC) with a kernel (OIHW) at stride 1, zero-padded to the same size."""
        return None

    def copy(self, workload: Workload, numbers: int) -> Offered | None:
        """A function that reads and writes `numbers` float32 numbers, with all threads: a copy or negation."""
        return None

    def preload(self, lane: str) -> None:  # noqa: B027 (a default, not an obligation)
        """Import the lane's modules, touching no device and starting no thread: workers are forked afterwards."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """True if the exception means that the host's or the device's memory ran out."""
        return is_out_of_memory(error)

    def is_compilers_fault(self, error: BaseException) -> bool:
        """True if the framework's compiler, or code that it made, failed; the lane's fallback flags may then help."""
        return False

    def said(self, error: BaseException) -> str:
        """Half a sentence on an exception: its type and its reason."""
        return f"{type(error).__name__}: {first_line(error)}"

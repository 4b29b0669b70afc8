"""Data parallelism in TensorFlow: one process per device, each with its slice of every batch.

The processes are the workers of a `MultiWorkerMirroredStrategy`, which averages their gradients by all-reduce: by NCCL
between GPUs, by a ring over gRPC between CPUs. Each process has variables of its own: all start from the same values
and are changed by the same gradients.
"""

import json
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from fwbench.ext.tensorflow.imported import tf
from fwbench.frameworks.contract import Ranks

_CONFIGURATION = "TF_CONFIG"


class Replicas:
    """The workers, of which this process is one.

    Raises:
        OSError: the workers do not find each other; one sentence.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        # The other devices belong to other ranks.
        tf.config.set_visible_devices(gpus()[ranks.local : ranks.local + 1], "GPU")
        workers = ranks.gather(_free_address(ranks))
        os.environ[_CONFIGURATION] = json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": ranks.rank}}
        )
        try:
            self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        except (tf.errors.OpError, RuntimeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise OSError(f"TensorFlow's workers do not find each other at {', '.join(workers)} ({reason})") from error
        finally:
            del os.environ[_CONFIGURATION]

    def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call in which `mean` and `first` may be called. All ranks make it."""
        return self._strategy.run(call, arguments)

    def mean(self, tensors: Sequence[Any]) -> list[Any]:
        """The mean of each of these tensors over the ranks."""
        return self._reduced(tf.distribute.ReduceOp.MEAN, tensors)

    def first(self, tensors: Sequence[Any]) -> list[Any]:
        """The first rank's values of these tensors."""
        # Copies, as only tensors made on a device can be reduced; arguments of a call are not.
        own = [tf.identity(one) if self.ranks.rank == 0 else tf.zeros_like(one) for one in tensors]
        return self._reduced(tf.distribute.ReduceOp.SUM, own)

    def _reduced(self, operation: Any, tensors: Sequence[Any]) -> list[Any]:
        return tf.distribute.get_replica_context().all_reduce(operation, list(tensors))


def gpus() -> list[Any]:
    """The GPUs that the process may use, including those of the other ranks on its host."""
    return tf.config.list_physical_devices("GPU")


def _free_address(ranks: Ranks) -> str:
    """A free `host:port` of this process; the host's address is one that the first rank can reach."""
    host, _, port = ranks.address.rpartition(":")
    # Nothing is sent: the kernel only chooses the address that it would send from.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reaching:
        reaching.connect((host, int(port)))
        own = reaching.getsockname()[0]
    with socket.socket() as listening:
        listening.bind((own, 0))
        return f"{own}:{listening.getsockname()[1]}"

"""An engine whose slots are threads of this process, and whose measurements are made up."""

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from fwbench.ext.cluster.engine import Engine, LostError, Place
from fwbench.ext.cluster.slot import Description
from tests.unit.recorded import MACHINE, measured


class FakeEngine(Engine):
    """One slot for each host that is named.

    Attributes:
        measure: called with a place and a workload, as each slot measures it; may raise `LostError`.
        log: begin and end of each measurement: (what, place, workload's batch size).
        faults, accelerators, machines: by host, what a slot says of itself.
        dead: hosts that answer nothing more.
        stuck: hosts that do not answer, until they are killed and started again.
        ended: is set when a slot was asked to end its measurement.
    """

    name = "Fake"
    status = "`fake status`"

    def __init__(self, *hosts):
        self.places = [Place(f"node{n}", host, 0, 1, False) for n, host in enumerate(hosts)]
        self.machines, self.faults, self.accelerators = {}, {}, {}
        self.dead, self.stuck = set(), set()
        self.log, self.asked, self.killed, self.closed = [], [], [], 0
        self.measure = lambda place, workload: None
        self.ended, self._end = threading.Event(), threading.Event()
        self._threads = ThreadPoolExecutor(16)

    def start(self, place, *arguments):
        return SimpleNamespace(place=place, gone=threading.Event())

    def ask(self, handle, method, *arguments):
        self.asked.append((method, handle.place.host))
        return self._threads.submit(self._answer, handle, method, *arguments)

    def _answer(self, handle, method, *arguments):
        place = handle.place
        if place.host in self.stuck:
            self._end.wait(10)
        if place.host in self.dead or handle.gone.is_set():
            raise LostError
        if method == "describe":
            machine = dataclasses.replace(self.machines.get(place.host, MACHINE), cpus=(int(place.node[-1]),))
            accelerator = self.accelerators.get(place.host, f"CPUs {place.node[-1]}")
            return Description(accelerator, machine, self.faults.get(place.host, ""))
        if method == "stages":
            return ["build", "latency"]
        if method == "measure":
            return self._measured(handle, *arguments)
        # A slot takes a while to end its work, in which the next workload must not begin.
        self.ended.set()
        time.sleep(0.2)
        return None

    def _measured(self, handle, selection, project, workload, protocol):
        self.log.append(("begin", handle.place, workload.batch_size))
        try:
            made = self.measure(handle.place, workload)
        except LostError:
            handle.gone.set()
            raise
        self.log.append(("end", handle.place, workload.batch_size))
        lane, model, size = workload.lane, workload.model, workload.batch_size
        return made or measured(lane, model, batch_size=size, protocol=protocol.to_json())

    def kill(self, handle):
        handle.gone.set()
        self.stuck.discard(handle.place.host)
        self.killed.append(handle.place.host)

    def close(self):
        self.closed += 1
        self._end.set()

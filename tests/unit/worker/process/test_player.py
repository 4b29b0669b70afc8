"""A player over fake programs and a fake clock, and its server in a real process."""

import contextlib
import json
import sys
import time

import pytest

from fwbench.errors import Absent
from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Metric
from fwbench.record.spans import Span
from fwbench.worker.client.channel import Channel
from fwbench.worker.client.conversation import Conversation
from fwbench.worker.client.starting import SERVER, command, configuration, environment
from fwbench.worker.process import player as players
from fwbench.worker.process.witness import Witness
from fwbench.worker.protocol import VERSION
from tests.unit.fakes import FakeClock, FakeFramework, FakeProgram
from tests.unit.shared import UNTIMED

NOOP = {"lane": "noop", "model": "noop", "mode": "fixed"}
MODEL = CATALOG["noop"].to_json()
JOB = {
    **{"workload": NOOP, "model": MODEL, "path": [], "side": "base", "root": "/elsewhere", "tree": None, "own": []},
    **{"recorded": [], "extra": 0.0, "turns": True},
}
CONFIGURATION = configuration(LANES["noop"], [], scratch="of a server that forks")


@pytest.fixture
def clock(monkeypatch):
    """All of a player's time."""
    clock = FakeClock()
    monkeypatch.setattr(players.time, "perf_counter", clock)
    return clock


def player(program, extra=0.0, kind=players.Player):
    made = kind.__new__(kind)
    players.Turns.__init__(made, program.step, program.wait, extra)
    made.program, made._samples = program, 2
    return made


class Watts:
    """A counter of joules."""

    name, fault = "fake", ""

    def __init__(self, clock, joules):
        self.clock, self.joules = clock, joules

    def read(self):
        return self.joules(self.clock.now)


def test_a_program_is_compiled_for_the_context_in_which_it_steps(clock):
    """PyTorch compiles a model with gradients anew where there are none."""
    program = FakeProgram(clock)

    @contextlib.contextmanager
    def session():
        program.log.append("enter")
        yield
        program.log.append("leave")

    program.session = session
    players.Built(FakeFramework(program), JOB, Witness("/"), program.log.append)
    assert program.log == [{"stage": "compile"}, "enter", "compile", "leave"]


def test_rounds_are_synchronised_calls(clock):
    program = FakeProgram(clock, lambda call: 0.5 + call)
    assert player(program).turn(4)["rounds"] == [0.5, 1.5, 2.5, 3.5]
    assert program.log == ["step", "wait"] * 4


def test_a_lanes_turn_times_calls_that_wait_and_calls_back_to_back(clock):
    program = FakeProgram(clock, lambda call: [9.0, 0.5, 0.7, 0.6, 0.1, 0.1, 0.1, 0.5][call])
    told = player(program).alone_and_together(3, 4)
    assert (told["latency"], told["call"]) == pytest.approx((0.6, 0.2))
    assert program.log == ["step", "wait"] * 4 + ["step"] * 4 + ["wait"]


@pytest.mark.parametrize("metered", [True, False])
def test_energy_is_a_samples_of_calls_back_to_back(clock, monkeypatch, metered):
    program = FakeProgram(clock, 0.01)
    monkeypatch.setattr(players.time, "sleep", clock.sleep)
    meter = Watts(clock, lambda now: 20 * now + 0.3 * program.calls) if metered else Absent("none")
    monkeypatch.setattr(players.energy, "counter", lambda device: meter)
    made = player(program)
    made.usual = 0.01, 0.01
    # A call of 0.01 s: 0.2 J while the device idles, and 0.3 J on top, over two samples.
    assert made.energy() == (pytest.approx(0.25) if metered else None)
    assert program.log[:51] == (["step"] * 50 + ["wait"] if metered else [])


def test_a_slow_programs_only_call_stands_for_both_and_none_goes_before_it(clock):
    program = FakeProgram(clock, 2.0)
    told = player(program).alone_and_together(1, 0)
    assert (told["latency"], told["call"], program.calls) == (2.0, 2.0, 1)


def test_cpu_time_is_the_mean_without_the_first_round(clock, monkeypatch):
    program = FakeProgram(clock, lambda call: 9.0 if call == 0 else 1.0)
    monkeypatch.setattr(players.time, "process_time", lambda: 2 * clock.now)
    assert player(program).turn(5)["cpu_time"] == 2.0


def test_a_placing_moves_the_program_and_warms_it(clock):
    program = FakeProgram(clock, lambda call: 0.03 if call else 1.0)
    made = player(program)
    made.place([100, 10])
    assert program.log == ["relocate"]
    assert [len(block) for block in made._padding] == [100, 10]
    assert made.warm_up() == pytest.approx(0.03)
    assert program.calls == players._WARM_CALLS[1]


def test_a_program_that_was_measured_stays_where_it_is(clock):
    """New memory must be touched first, which takes a slow program seconds of a round."""
    program = FakeProgram(clock, lambda call: 0.03)
    player(program, kind=players.Measured).place([100, 10])
    assert program.log == []


@pytest.mark.parametrize("extra", [0.03, 0.10])
def test_planted_work_is_a_share_of_the_steps_time(clock, monkeypatch, extra):
    """Whatever a unit of work takes."""
    monkeypatch.setattr(players, "_unit", lambda: clock.advance(1e-6))
    made = player(FakeProgram(clock, 0.01), extra)
    made.warm_up()
    assert made.turn(3)["rounds"] == pytest.approx([0.01 * (1 + extra)] * 3)


def test_planted_work_is_not_part_of_the_time_it_is_a_share_of(clock, monkeypatch):
    monkeypatch.setattr(players, "_unit", lambda: clock.advance(1e-6))
    made = player(FakeProgram(clock, 0.01), 0.10)
    for _ in range(4):
        made.warm_up()
    assert made.turn(2)["rounds"] == pytest.approx([0.011] * 2)


@pytest.mark.parametrize(("build", "told"), [(100.0, None), (40.0, 50.0)])
def test_a_peak_from_before_the_step_is_left_out(clock, monkeypatch, build, told):
    """JAX's allocator cannot forget what the build took."""
    program = FakeProgram(clock)
    program.memory_in_use = lambda: Metric(10.0, "an allocator")
    program.peak_memory = lambda: Metric(max(build, 50.0 * (program.calls > 0)), "an allocator")
    assert player(program).memory().get("device_peak_memory") == told


def test_what_the_profiler_recorded_is_rows_with_places_from_the_repositorys_root(clock):
    program = FakeProgram(clock)
    program.spans = lambda calls: [Span("operator", "1", "mul", 0.0, calls, "8", "/side/ops.py:9")]
    assert player(program).spans(5, "/side") == [["operator", "1", "mul", 0.0, 5, "8", "ops.py:9"]]


def test_why_a_profiler_recorded_nothing_is_told(clock):
    program = FakeProgram(clock)

    def busy(calls):
        raise RuntimeError("CUPTI is in use\nby another")

    program.spans = busy
    assert player(program).spans(5, "/") == "RuntimeError: CUPTI is in use"


@pytest.fixture
def server(tmp_path):
    config = json.dumps({**CONFIGURATION, "scratch": str(tmp_path)})
    channel = Channel(command(sys.executable, SERVER, config), environment({}, 1, "cpu", LANES["noop"]))
    assert answer(channel)["protocol"] == VERSION
    yield channel
    channel.close()


def answer(channel):
    return Conversation(channel).receive(time.monotonic() + 60, 60)


def ask(channel, message):
    channel.send(message)
    return answer(channel)


def test_a_job_from_its_start_to_its_end(server):
    for _ in range(2):
        assert ask(server, JOB)["built"]["versions"]["numpy"]
        for _ in range(2):
            assert ask(server, {"place": [1000, 10]})["placed"] > 0
            assert len(ask(server, {"rounds": 5})["rounds"]) == 5
            assert len(ask(server, {"rounds": 2})["rounds"]) == 2
        finished = ask(server, {"finish": {"program": True, "spans": 4}})
        assert finished["finished"]["host_peak_memory"] > 1 << 20
        assert "no framework" in finished["program"]["absent"]["digest"]
        assert finished["settings"] == {}
        assert finished["spans"] == "the lane has no profiler"
        assert answer(server) == {"exited": 0}


def test_a_server_takes_jobs_of_both_kinds(server):
    """One is measured alone, and the next takes turns."""
    alone = {
        **{"workload": NOOP, "model": MODEL, "path": [], "root": "/elsewhere", "proofs": "/elsewhere", "user": {}},
        **{"protocol": UNTIMED.to_json(), "patience": 0.0},
    }
    for _ in range(2):
        assert ask(server, alone)["started"]
        assert answer(server)["measurement"].failure is None
        assert answer(server) == {"exited": 0}
        assert "built" in ask(server, JOB)
        assert "finished" in [ask(server, {"place": []}), ask(server, {"finish": {"program": False, "spans": 0}})][-1]
        assert answer(server) == {"exited": 0}


def test_an_exception_is_the_failure_that_it_would_be_of_a_lane_alone(server):
    told = ask(server, JOB | {"workload": {**NOOP, "of_tomorrow": 1}})["failure"]
    assert told["kind"] == "error"
    assert "of_tomorrow" in told["message"]
    assert "Traceback" in told["detail"]
    assert "exited" in answer(server)
    # And the server takes another job.
    assert "built" in ask(server, JOB)


def test_what_is_printed_does_not_corrupt_the_messages(tmp_path):
    """A framework that prints on import and at every step."""
    package = tmp_path / "fwbench_printing.py"
    package.write_text("import os, sys\nprint('printed', flush=True)\nos.write(1, b'raw\\n')\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import json, sys\n"
        "from fwbench.worker.process import server\n"
        "claim = server.Pipes\n"
        "def claimed():\n"
        "    claimed = claim()\n"
        f"    exec(open({str(package)!r}).read())\n"
        "    return claimed\n"
        "server.Pipes = claimed\n"
        "server.serve(json.loads(sys.argv[1]))\n"
    )
    config = json.dumps({**CONFIGURATION, "fork": False})
    server = command(sys.executable, script, config)
    with contextlib.closing(Channel(server, environment({}, 1, "cpu", LANES["noop"]))) as channel:
        assert "ready" in channel.receive(time.monotonic() + 60)
        assert "built" in ask(channel, JOB)
        assert "printed" in channel.said()
        assert "raw" in channel.said()


def test_what_starts_a_process_is_no_module_of_the_users(tmp_path, monkeypatch):
    """In fwbench's own repository head's `start.py` starts base's processes, too, some as `__mp_main__`."""
    job = JOB | {"tree": str(tmp_path), "root": str(tmp_path / "base")}
    module = type(sys)("theirs")
    module.__file__ = str(tmp_path / "fwbench" / "worker" / "process" / "start.py")
    monkeypatch.setitem(sys.modules, "__mp_main__", module)
    assert players.stray(job) == {}
    monkeypatch.setitem(sys.modules, "theirs", module)
    assert players.stray(job) == {"stray": ["theirs", module.__file__]}

"""Where a call's time goes: from spans to a table and traces."""

import json
import math

import pytest

from fwbench.ext.causes import spent as operators
from fwbench.ext.causes.explaining import Explanation
from fwbench.ext.causes.operators import changes, profile
from fwbench.ext.causes.steps import Search, Stretch
from fwbench.frameworks import hlo, xplane
from fwbench.record.spans import CALL, Span


def call(start, seconds):
    return Span("call", "python", "a call", start, seconds)


def operator(name, start, seconds, thread="1", **more):
    return Span("operator", thread, name, start, seconds, **more)


def calls(*operators_of_a_call, seconds=1.0, count=4):
    """Calls, one after another, each with these operators."""
    spans = [call(0.0, seconds)]
    for number in range(1, count):
        spans.append(call(2.0 * number, seconds))
        for name, start, taken, shapes in operators_of_a_call:
            spans.append(operator(name, 2.0 * number + start, taken, shapes=shapes))
    return spans


def test_an_operators_time_is_without_those_within_it():
    spans = [
        *(call(0.0, 1.0), call(1.0, 10.0)),
        *(operator("loop", 2.0, 6.0), operator("mul", 3.0, 1.0), operator("body", 4.5, 3.0), operator("add", 5.0, 2.0)),
        operator("mul", 9.0, 0.5),
        operator("beside", 2.0, 6.0, thread="2"),
    ]
    found = {name: (spent.seconds, spent.runs) for (name, _), spent in profile(spans).operators.items()}
    assert found == {"loop": (2.0, 1), "mul": (1.5, 2), "body": (1.0, 1), "add": (2.0, 1), "beside": (6.0, 1)}
    assert profile(spans).outside == 10.0 - 12.5


def test_the_faster_half_of_the_calls_counts_and_neither_the_first_call_nor_what_is_between():
    spans = [
        *(call(0.0, 0.5), operator("mul", 0.1, 0.1)),
        operator("mul", 1.5, 0.9),
        *(call(2.0, 1.0), operator("mul", 2.1, 0.3)),
        # Calls that waited for fresh memory.
        *(call(4.0, 5.0), operator("mul", 4.1, 4.0)),
        *(call(10.0, 4.0), operator("mul", 10.1, 3.0)),
        *(call(15.0, 1.2), operator("mul", 15.1, 0.5)),
        Span("other", "python", "dispatch", 10.0, 1.0),
    ]
    found = profile(spans)
    assert found.operators["mul", ""].seconds == pytest.approx(0.4)
    assert (found.operators["mul", ""].runs, found.seconds) == (1, 1.1)
    assert profile([call(0.0, 1.0), call(1.0, 1.0)]) == "the profiler recorded no operator"


def test_instructions_that_numbers_alone_tell_apart_are_one_operator():
    spans = [call(0.0, 1.0), call(1.0, 9.0)]
    names = ("add_fusion", "add_fusion.12", "add_fusion.clone.3", "add_fusion.remat2", "add.fusion", "conv2d.1x1")
    spans += [operator(name, 1.0 + number, 0.5) for number, name in enumerate(names)]
    assert {name: spent.runs for (name, _), spent in profile(spans).operators.items()} == {
        "add_fusion": 4,
        "add.fusion": 1,
        "conv2d.1x1": 1,
    }


def test_an_operator_of_one_side_alone_is_a_change_too():
    base = profile(calls(("gelu", 0.0, 0.1, "8"), ("mm", 0.5, 0.2, "8x8")))
    head = profile(calls(("mul", 0.0, 0.3, "8"), ("mm", 0.5, 0.1, "8x8"), ("mm", 0.7, 0.15, "8x8")))
    found = [(each.name, each.shapes, round(each.seconds, 3), each.head.runs) for each in changes(base, head)]
    assert found == [("mul", "8", 0.3, 1), ("gelu", "8", -0.1, 0), ("mm", "8x8", 0.05, 2)]


def explanation(base, head, change, latency=1.0, error=0.01):
    """Of a head that takes by `change` longer than base, in logarithms."""
    search = Search(2, lambda *_: 0.0)
    search.compared.append(Stretch(0, 1, -change, -change - error, -change + error, 6))
    return Explanation(["mine/ops.py, line 9"], search, {}, (base, head), latency)


def test_the_table_shows_what_changed_most_and_how_much_of_the_measured_difference_it_is():
    base = calls(("gelu", 0.0, 0.1, "8x8"), ("mm", 0.3, 0.2, "8x8"), seconds=0.6)
    head = calls(("mul", 0.0, 0.3, ""), ("mm", 0.5, 0.2, "8x8"), ("mm", 0.7, 0.2, "8x8"), seconds=1.1)
    lines = operators.table(explanation(base, head, math.log(1.0 / 0.5)))
    assert [line.split() for line in lines[1:-1]] == [
        ["base", "head", "difference", "runs", "operator"],
        ["-", "300", "ms", "+300", "ms", "0", "to", "1", "mul"],
        ["200", "ms", "400", "ms", "+200", "ms", "1", "to", "2", "mm", "8x8"],
        ["100", "ms", "-", "-100", "ms", "1", "to", "0", "gelu", "8x8"],
        ["300", "ms", "400", "ms", "+100", "ms", "outside", "of", "operators"],
        ["600", "ms", "1.10", "s", "+500", "ms", "a", "call", "under", "the", "profiler"],
    ]
    assert lines[-1] == (
        "Without the profiler, pairs measured a difference of +500 ms; operators account for +400 ms (80%)."
    )


def test_small_changes_are_one_row_together():
    def side(extra):
        return calls(*((f"op{number}", number / 20, 0.01 + extra * number, "") for number in range(12)))

    lines = operators.table(explanation(side(0.0), side(0.001), 0.1))
    assert [line.split()[-1] for line in lines[2:10]] == [f"op{number}" for number in range(11, 3, -1)]
    assert lines[10].split() == ["40.0", "ms", "46.0", "ms", "+6.00", "ms", "4", "other", "operators"]


@pytest.mark.parametrize(
    ("base", "head", "error", "words"),
    [
        (calls(("mm", 0.0, 0.1, "")), calls(("mm", 0.0, 0.1, "")), 0.2, []),
        ("the lane has no profiler", "x", 0.01, ["Where the time went is not known: the lane has no profiler."]),
        (calls(), calls(), 0.01, ["Where the time went is not known: the profiler recorded no operator."]),
    ],
)
def test_without_a_difference_or_a_profile_there_is_no_table(base, head, error, words):
    assert operators.table(explanation(base, head, 0.1, error=error)) == words


def test_a_trace_is_in_the_format_that_perfetto_opens(tmp_path):
    base = [call(5.0, 1.0), operator("mm", 5.25, 0.5, "stream 7", shapes="8x8", place="ops.py:9")]
    told = operators.write(explanation(base, "no profiler", 0.1), tmp_path)
    assert told == [f"Traces for https://ui.perfetto.dev: {tmp_path / 'base.json'}."]
    events = json.loads((tmp_path / "base.json").read_text())["traceEvents"]
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == ["python", "stream 7"]
    (found,) = (event for event in events if event["name"] == "mm")
    assert (found["ph"], found["tid"], found["ts"], found["dur"]) == ("X", 2, 250000.0, 500000.0)
    assert found["args"] == {"shapes": "8x8", "place": "ops.py:9"}


BY_FRAMES = """HloModule jit_f, is_scheduled=true

FileNames
1 "/side/mine/ops.py"
2 "/venv/lib/python3.13/site-packages/flax/nnx/nn/linear.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=41 end_line=41 column=1 end_column=2}
2 {file_name_id=2 function_name_id=1 line=7 end_line=7 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=PARENT}
2 {file_location_id=2 parent_frame_id=CALLER}
3 {file_location_id=2 parent_frame_id=PARENT}


%region_0.1 (a: f32[], b: f32[]) -> f32[] {
  ROOT %add.5 = f32[] add(%a, %b), metadata={op_name="jit(f)/add" stack_frame_id=2}
}

ENTRY %main (x.1: f32[8]) -> f32[8] {
  %x.1 = f32[8]{0} parameter(0), metadata={op_name="x"}
  %call = (s32[], f32[4,16]{1,0:T(8,128)}) call(%x.1), to_apply=%r, metadata={op_name="while" stack_frame_id=1}
  ROOT %dot.2 = f32[8,4]{1,0} dot(%x.1, %x.1), lhs_contracting_dims={1}, metadata={op_name="dot" stack_frame_id=3}
}
"""


@pytest.mark.parametrize(("parent", "caller"), [("0", "1"), ("1", "2")], ids=["from 0", "from 1"])
def test_an_instruction_has_its_results_shape_and_the_users_line_that_led_there(parent, caller):
    found = hlo.instructions(BY_FRAMES.replace("PARENT", parent).replace("CALLER", caller))
    assert found == {
        "add.5": ("f32[]", "/side/mine/ops.py:41"),
        "x.1": ("f32[8]", ""),
        "call": ("(s32[], f32[4,16])", "/side/mine/ops.py:41"),
        "dot.2": ("f32[8,4]", "/venv/lib/python3.13/site-packages/flax/nnx/nn/linear.py:7"),
    }


def test_an_instruction_may_have_its_place_itself():
    line = '  %dot.2 = f32[8]{0} dot(%a, %b), metadata={op_name="d" source_file="/side/ops.py" source_line=3}\n'
    assert hlo.instructions(line) == {"dot.2": ("f32[8]", "/side/ops.py:3")}
    assert hlo.instructions(line.replace("/side", "/dist-packages/tensorflow")) == {"dot.2": ("f32[8]", "")}


def event(name, start, plane="/host:CPU", line="python", duration=1000.0, **stats):
    return xplane.Event(plane, line, name, start, duration, stats)


def test_on_a_cpu_instructions_and_nodes_are_the_operators():
    spans = xplane.spans(
        [
            event(CALL, 0.0),
            event("dot.2", 2e9, hlo_op="dot.2"),
            # XLA has put a single instruction into a fusion of its own, as some releases do.
            event("wrapped_slice.1", 2.5e9, hlo_op="wrapped_slice.1"),
            event("end: dot.2", 3e9),
            event("block/Relu:_FusedMatMul", 4e9, line="tf_Compute"),
            event("ExecutorState::Process", 5e9, line="tf_Compute"),
            event("never", 6e9, duration=0.0),
        ],
        '  %dot.2 = f32[8]{0} dot(%a, %b), metadata={source_file="/ops.py" source_line=3}\n',
    )
    assert [(span.kind, span.name, span.start, span.shapes, span.place) for span in spans] == [
        ("call", CALL, 0.0, "", ""),
        ("operator", "dot.2", 2.0, "f32[8]", "/ops.py:3"),
        ("operator", "slice.1", 2.5, "", ""),
        ("other", "end: dot.2", 3.0, "", ""),
        ("operator", "_FusedMatMul", 4.0, "", "block/Relu"),
        ("other", "ExecutorState::Process", 5.0, "", ""),
    ]
    assert spans[1].seconds == 1e-6


def test_on_a_gpu_the_streams_are_the_operators():
    gpu = "/device:GPU:0 (NVIDIA H100)"
    spans = xplane.spans(
        [
            event("loop_add_fusion", 0.0, plane=gpu, line="Stream #13(Compute)", hlo_op="add_fusion.1"),
            event("ampere_sgemm", 1.0, plane=gpu, line="Stream #13(Compute)"),
            event("add_fusion.1", 2.0, plane=gpu, line="XLA Ops", hlo_op="add_fusion.1"),
            event("thunk", 3.0, hlo_op="add_fusion.1"),
        ],
        "",
    )
    assert [(span.kind, span.name) for span in spans] == [
        *(("operator", "add_fusion.1"), ("operator", "ampere_sgemm")),
        *(("other", "add_fusion.1"), ("other", "add_fusion.1")),
    ]

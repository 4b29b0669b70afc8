"""Fingerprints compared: pure data, every finding and its rank."""

import dataclasses
import json

import pytest

from fwbench.compare.programs import compare
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload

BASE = Fingerprint(
    form="StableHLO",
    digest="a" * 64,
    operators={"add": 5, "dot_general": 3, "optimization_barrier": 1},
    dtypes={"float32": {"add": 5, "dot_general": 3}},
    compiler={"jax": "0.9.2", "jaxlib": "0.9.2", "XLA_FLAGS": ""},
    processor="x86_64 cpu",
    flops=1000.0,
    bytes_accessed=4000.0,
    fusions=6,
    memory=800.0,
    aliased=21,
    compilations=1,
    recompilations=0,
    absent={"graph_breaks": "a program traced by JAX is one graph"},
)


def head(**changes):
    """The baseline with changes; another program when more than its compiler changed."""
    lowered = changes.keys() & {"operators", "dtypes"}
    return dataclasses.replace(BASE, **({"digest": "b" * 64} if lowered else {}), **changes, absent={})


def found(base, now, device="cpu"):
    return [(finding.kind, finding.sentence, finding.changed) for finding in compare(base, now, device)]


def test_the_same_program_and_compiler():
    assert found(BASE, head()) == [
        ("same", "same program, same compiler: a difference in time is the machine's", False)
    ]


def test_operators_are_counted_and_the_compilers_figures_follow():
    now = head(
        operators={"add": 4, "dot_general": 3, "optimization_barrier": 1, "transpose": 3},
        flops=1000.0,
        bytes_accessed=4480.0,
        fusions=8,
    )
    assert found(BASE, now) == [
        ("program", "3 more transpose, 1 fewer add, bytes accessed +12 %, fusions 6 -> 8", True)
    ]


def test_many_changed_operators_are_summed_up():
    now = head(operators={**BASE.operators, **{f"op{n:02}": 20 - n for n in range(10)}})
    ((_, sentence, _),) = found(BASE, now)
    assert sentence.startswith("20 more op00, 19 more op01, ")
    assert sentence.endswith("13 more op07, 2 other kinds of operators changed in number")


def test_the_same_operators_on_other_shapes():
    ((kind, sentence, changed),) = found(BASE, head(operators=BASE.operators))
    assert (kind, changed) == ("program", True)
    assert sentence == "as many operators of each kind, other in shape, layout, constants or order"


def test_all_at_once_in_the_order_of_their_weight():
    now = head(
        operators={"add": 5, "constant": 1, "dot_general": 3},
        dtypes={**BASE.dtypes, "float64": {"constant": 1, "multiply": 2}},
        aliased=20,
        recompilations=3,
    )
    kinds, sentences, changed = zip(*found(BASE, now), strict=True)
    assert kinds == ("recompiles", "dtype", "donation", "barrier", "program")
    assert "3 times after the warm-up" in sentences[0]
    assert sentences[1] == "float64 is new: 1 constant, 2 multiply"
    assert sentences[2].startswith("1 argument fewer whose buffer an output takes over (21 -> 20): a donation was drop")
    assert sentences[3].startswith("1 fusion barrier lost (optimization_barrier)")
    assert sentences[4] == "1 more constant"
    assert all(changed)


def test_what_was_added_is_named_too():
    now = head(operators={**BASE.operators, "optimization_barrier": 3}, dtypes={}, aliased=23)
    sentences = [sentence for _, sentence, _ in found(BASE, now)]
    assert sentences[:3] == [
        "float32 is gone",
        "2 arguments more whose buffer an output takes over (21 -> 23)",
        "2 new fusion barriers (optimization_barrier)",
    ]


def test_other_compiler_versions_matter_where_they_make_something_else_of_it():
    newer = {"jax": "0.10.2", "jaxlib": "0.10.2", "XLA_FLAGS": ""}
    by = "(jax 0.9.2 -> 0.10.2, jaxlib 0.9.2 -> 0.10.2)"
    assert found(BASE, head(compiler=newer)) == [
        ("compiler", f"same program, other compiler versions {by}: made the same of it", False)
    ]
    assert found(BASE, head(compiler=newer, fusions=5, memory=840.0)) == [
        ("compiler", f"same program, other compiler versions {by}: the compiler's memory +5 %, fusions 6 -> 5", True)
    ]
    ((kind, sentence, _),) = found(BASE, head(compiler=newer, operators={**BASE.operators, "add": 6}))
    assert (kind, sentence) == ("program", f"1 more add (by {by[1:-1]})")


def test_another_processor_gets_other_code_of_the_same_program():
    ((kind, sentence, changed),) = found(BASE, head(processor="aarch64 cpu", fusions=7))
    assert (kind, changed) == ("compiler", False)
    assert sentence == "same program, other processor (x86_64 cpu -> aarch64 cpu): fusions 6 -> 7"
    ((*_, changed),) = found(BASE, head(processor="aarch64 cpu", operators={"add": 1}))[-1:]
    assert changed


def test_other_figures_without_another_compiler_are_looked_into():
    ((kind, sentence, changed),) = found(BASE, head(flops=0.0))
    assert (kind, changed) == ("compiler", True)
    assert sentence == "same program, same compiler versions, but FLOPs -100 %: compare its settings"


def test_memory_is_told_by_its_parts_and_library_calls_and_precisions_by_name():
    parts = {"arguments": 500.0, "outputs": 200.0, "temporaries": 100.0, "aliased": 0.0}
    base = head(memory_parts=parts, libraries={"cudnn$conv": 3}, precisions={"float32 highest": 3})
    now = dataclasses.replace(
        base,
        memory=816.0,
        memory_parts={**parts, "temporaries": 136.0, "aliased": 20.0},
        libraries={"cublas$gemm": 1, "cudnn$conv": 2},
        precisions={"float32 default": 3},
        absent={},
    )
    ((kind, sentence, changed),) = found(base, now)
    assert (kind, changed) == ("compiler", True)
    assert sentence == (
        "same program, same compiler versions, but the compiler's memory +2 % (aliased 0 -> 20, temporaries +36 %), "
        "calls of cublas$gemm 0 -> 1, calls of cudnn$conv 3 -> 2, "
        "products in float32 default 0 -> 3, products in float32 highest 3 -> 0: compare its settings"
    )


@pytest.mark.parametrize("versions", ["0.9.2", "0.10.2"])
def test_what_a_compiler_chose_by_measuring_on_a_gpu_is_told_and_no_other_program(versions):
    now = head(memory=900.0, fusions=5, compiler={**BASE.compiler, "jaxlib": versions})
    ((kind, sentence, changed),) = found(BASE, now, "gpu")
    assert (kind, changed) == ("compiler", False)
    assert "the compiler's memory +12.5 %, fusions 6 -> 5" in sentence
    assert found(BASE, now)[0][2]
    assert found(BASE, head(operators={"add": 1}), "gpu")[-1][2]


def test_how_often_it_recompiles_depends_on_how_often_it_is_called():
    recompiling = head(compilations=5, recompilations=60)
    assert found(recompiling, BASE)[0][0] == "same"
    assert found(recompiling, head(compilations=2, recompilations=2))[0] == (
        "recompiles",
        "still recompiles at steady state",
        False,
    )


def test_graph_breaks_are_counted():
    base, now = (dataclasses.replace(BASE, graph_breaks=breaks, absent={}) for breaks in (0, 2))
    assert found(base, now)[0] == ("graph_breaks", "2 graph breaks, where the baseline has 0", True)


def test_a_program_that_can_no_longer_be_told_is_a_change():
    untold = Fingerprint.untold("RuntimeError: no room")
    assert found(BASE, untold) == [("untold", "no program to compare: RuntimeError: no room", True)]
    assert found(untold, BASE) == [("untold", "the baseline has no program: RuntimeError: no room", False)]
    assert [changed for *_, changed in found(untold, untold)] == [False]


def test_programs_told_in_two_ways_are_not_compared():
    ((kind, sentence, changed),) = found(BASE, head(form="dispatched operators"))
    assert (kind, changed) == ("form", True)
    assert sentence == "the baseline's program is described in StableHLO, this one in dispatched operators"


def test_what_is_absent_has_a_reason_and_what_is_there_has_none():
    told = Fingerprint(digest="d", absent={"flops": "nobody counted"})
    assert told.absent["flops"] == "nobody counted"
    assert told.absent["fusions"]
    assert "digest" not in told.absent
    with pytest.raises(ValueError, match="digest"):
        Fingerprint(digest="d", absent={"digest": "lost"})


def test_compilations_that_nobody_announced_are_absent_and_not_zero():
    assert BASE.recompilations == 0
    untold = Fingerprint(digest="d").counted(0, 0)
    assert untold.compilations is untold.recompilations is None
    assert "announced no compilation" in untold.absent["recompilations"]
    assert Fingerprint(digest="d").counted(1, None).absent["recompilations"] == "no call came after the warm-up"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("digest", 7),
        ("operators", {"add": "five"}),
        ("dtypes", {"float32": 5}),
        ("fusions", True),
        ("wings", 2),
    ],
)
def test_a_damaged_fingerprint_is_refused(field, value):
    with pytest.raises(TypeError, match=field):
        Fingerprint.from_json({**dataclasses.asdict(BASE), "absent": {}, field: value})


def test_a_measurement_gives_its_program_back():
    measurement = Measurement(Workload("jax", "mlp"), program=BASE)
    assert Measurement.from_json(json.loads(json.dumps(measurement.to_json()))) == measurement

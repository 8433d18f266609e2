"""One small training step, small enough to add up by hand.

    step 1  MatMul     h  = x w          forward      reads x 1024, w 4096   writes h 2048
    step 2  Relu       y  = max(h, 0)    forward      writes y 2048
    step 3  Relu_grad  dh = …            backward     reads y                writes dh 2048
    step 4  MatMul     dw = xᵀ dh        backward     workspace 512          writes dw 4096

    bytes live     step 1    step 2    step 3    step 4
    w  4096          4096      4096      4096      4096
    x  1024          1024      1024      1024      1024
    h  2048          2048      2048
    y  2048                    2048      2048
    dh 2048                              2048      2048
    dw 4096                                        4096
    workspace 512                                   512
    sum              7168      9216      9216     11776

The arena is given 12288 bytes, so at the peak, step 4, no buffer holds 12288 - 11776 = 512.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from gradtool.graph.specs import Spec
from gradtool.planning.plan import Buffer, Plan
from gradtool.program import Program, Step, Value
from gradtool.reports import memory

FLOAT = np.dtype("float32")
PROGRAM = Program(
    values=(
        Value("x", Spec((8, 32), FLOAT), "input"),
        Value("w", Spec((32, 32), FLOAT), "parameter"),
        Value("h", Spec((8, 64), FLOAT), "activation"),
        Value("y", Spec((8, 64), FLOAT), "activation"),
        Value("dh", Spec((8, 64), FLOAT), "gradient"),
        Value("dw", Spec((32, 32), FLOAT), "gradient"),
    ),
    steps=(
        Step("MatMul_0", "MatMul", (0, 1), (2,), {}),
        Step("Relu_1", "Relu", (2,), (3,), {}),
        Step("Relu_1_grad", "Mul", (3,), (4,), {}, "backward", "Relu_1"),
        Step("MatMul_0_grad", "MatMul", (0, 4), (5,), {}, "backward", "MatMul_0"),
    ),
    inputs=(0,),
    outputs=(5,),
    constants={},
)
PLAN = Plan(
    name="keep",
    program=PROGRAM,
    buffers=(
        Buffer("w", "parameters", 4096, 0, 0, 3, (1,)),
        Buffer("x", "inputs", 1024, 4096, 0, 3, (0,)),
        Buffer("h", "activations", 2048, 5120, 0, 1, (2,)),
        Buffer("y", "activations", 2048, 7168, 1, 2, (3,)),
        Buffer("dh", "gradients", 2048, 5120, 2, 3, (4,)),
        Buffer("dw", "gradients", 4096, 7168, 3, 3, (5,)),
        Buffer("MatMul_0_grad", "workspace", 512, 11776, 3, 3),
    ),
    peak=12288,
    peak_live=11776,
    scratch=0,
    peak_step=3,
)
EMPTY = Plan("keep", replace(PROGRAM, steps=(), outputs=()), (), 0, 0, 0, 0)


def test_regions_and_gaps_add_up_to_the_peak():
    table = memory.by_region(PLAN)

    # dh + dw = 6144, half of 12288; w = 4096, a third; x = 1024, a twelfth
    assert table.rows == (
        ("gradients", "6.00 KiB", "50.0 %"),
        ("parameters", "4.00 KiB", "33.3 %"),
        ("inputs", "1.00 KiB", "8.3 %"),
        ("fragmentation", "512 B", "4.2 %"),
        ("workspace", "512 B", "4.2 %"),
        ("peak", "12.0 KiB", "100.0 %"),
    )
    assert table.footer == memory.FOOTER


def test_what_kernels_take_outside_the_arena_is_said():
    plan = replace(PLAN, scratch=100)

    assert memory.by_region(plan).footer.startswith("outside the arena: up to 100 B\nplanned,")
    assert memory.summary(plan).endswith("; outside the arena: up to 100 B")


def test_the_largest_come_first_and_names_break_ties():
    table = memory.alive_at_peak(PLAN)

    assert table.rows == (
        ("dw", "gradients", "32x32", "float32", "4.00 KiB", "4-4"),
        ("w", "parameters", "32x32", "float32", "4.00 KiB", "1-4"),
        ("dh", "gradients", "8x64", "float32", "2.00 KiB", "3-4"),
        ("x", "inputs", "8x32", "float32", "1.00 KiB", "1-4"),
        ("MatMul_0_grad", "workspace", "", "", "512 B", "4-4"),
    )


def test_what_is_not_listed_is_counted():
    table = memory.alive_at_peak(PLAN, top=2)

    # dh 2048 + x 1024 + workspace 512 = 3584
    assert len(table.rows) == 2
    assert table.footer == f"and 3 more: 3.50 KiB\n{memory.FOOTER}"
    assert len(memory.alive_at_peak(PLAN, top=None).rows) == 5


def test_a_shape_that_depends_on_data_is_a_question_mark():
    unknown = replace(PROGRAM.values[5], spec=None)
    program = replace(PROGRAM, values=(*PROGRAM.values[:5], unknown))

    plan = replace(PLAN, program=program)
    assert memory.alive_at_peak(plan).rows[0][2:4] == ("?", "?")
    assert memory.plan_json(plan, "m", {})["alive"][0]["shape"] is None


def test_a_scalar_has_a_shape():
    loss = replace(PROGRAM.values[5], spec=Spec((), FLOAT))
    plan = replace(PLAN, program=replace(PROGRAM, values=(*PROGRAM.values[:5], loss)))

    assert memory.alive_at_peak(plan).rows[0][2] == "scalar"


def test_the_timeline_counts_from_zero_and_marks_the_backward_steps():
    # eighths of 11776, rounded up: 7168 → 4.87 → 5; 9216 → 6.26 → 7; 11776 → 8
    assert memory.timeline(PLAN) == "▅▇▇█\n  ^ backward from step 3"
    assert memory.timeline(PLAN, unicode=False) == "=**#\n  ^ backward from step 3"


def test_a_bucket_shows_its_largest_step():
    # steps 1 and 2 → 9216, steps 3 and 4 → 11776
    assert memory.timeline(PLAN, width=2) == "▇█\n ^ backward from step 3"


def test_the_label_stands_before_a_late_boundary():
    late = (*PROGRAM.steps[:2] * 30, PROGRAM.steps[3])
    plan = replace(PLAN, program=replace(PROGRAM, steps=late))

    line, label = memory.timeline(plan).splitlines()
    assert len(line) == 60
    assert label == " " * 37 + "backward from step 61 ^"
    assert label.index("^") == 59


def test_a_forward_program_has_one_line():
    plan = replace(PLAN, program=replace(PROGRAM, steps=PROGRAM.steps[:2] * 2))

    assert "\n" not in memory.timeline(plan)


def test_the_summary_says_where_and_of_what():
    assert memory.summary(PLAN) == (
        "peak 12.0 KiB at step 4/4 (MatMul_0 backward): gradients 6.00 KiB, parameters 4.00 KiB,"
        " inputs 1.00 KiB, fragmentation 512 B, workspace 512 B"
    )


@pytest.mark.parametrize("source", ["\x1b[31m", "a\nb", "\u202e"])
def test_a_hostile_step_name_is_inert_in_the_summary(source):
    hostile = replace(PROGRAM.steps[3], source=source)
    plan = replace(PLAN, program=replace(PROGRAM, steps=(*PROGRAM.steps[:3], hostile)))

    assert memory.summary(plan).isprintable()


def test_models_stand_side_by_side():
    table = memory.plans_table([PLAN, EMPTY], ["a.onnx", "b.onnx"])

    assert table.rows == (
        ("a.onnx", "12.0 KiB", "0 B", "0 B", "4.00 KiB", "6.00 KiB", "4"),
        ("b.onnx", "0 B", "0 B", "0 B", "0 B", "0 B", "0"),
    )


def test_a_program_without_steps_is_reported():
    assert memory.summary(EMPTY) == "peak 0 B no steps"
    assert memory.timeline(EMPTY) == ""
    assert memory.by_region(EMPTY).rows == (("peak", "0 B", "0.0 %"),)


def test_json_holds_integers_in_bytes_and_counts_steps_from_zero():
    document = memory.plan_json(PLAN, "mlp.onnx", {"seq": np.int64(4), "batch": 8})

    assert document == {
        "model": "mlp.onnx",
        "plan": "keep",
        "kernels": "numpy",
        "dims": {"batch": 8, "seq": 4},
        "peak_bytes": 12288,
        "load_bytes": 11776,
        "adapted_bytes": 0,
        "total_bytes": 12288,
        "mapped_bytes": 0,
        "peak_step": 3,
        "steps": 4,
        "regions": {"gradients": 6144, "parameters": 4096, "inputs": 1024, "workspace": 512},
        "gap_bytes": 512,
        "alive": [
            _alive("dw", "MatMul", "gradients", [32, 32], "float32", 4096, 3),
            _alive("w", None, "parameters", [32, 32], "float32", 4096, 0),
            _alive("dh", "Mul", "gradients", [8, 64], "float32", 2048, 2),
            _alive("x", None, "inputs", [8, 32], "float32", 1024, 0),
            _alive("MatMul_0_grad", "MatMul", "workspace", None, None, 512, 3),
        ],
    }
    assert list(document["dims"]) == ["batch", "seq"]
    assert json.loads(json.dumps(document)) == document


def _alive(name, op, region, shape, dtype, *numbers):
    size, first = numbers
    return {
        "name": name,
        "also": [],
        "op": op,
        "module": op and "(top)",
        "region": region,
        "shape": shape,
        "dtype": dtype,
        "bytes": size,
        "first": first,
        "last": 3,
    }

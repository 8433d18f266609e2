"""What is taken out as a barrier is proved to pass on what it reads; see test_barrier too."""

import onnx_ir as ir
import pytest
from clones import recompute
from graphs import lines, parse

import gradtool as gt
from gradtool.graph.metadata import BARRIER
from gradtool.passes.ort_allocator.barrier import barrier
from gradtool.passes.ort_allocator.strip_barriers import strip_barriers

CHAIN = """g (float[5] x) => (y) {
    h1 = Tanh (x) h2 = Tanh (h1) h3 = Tanh (h2) y = Tanh (h3)
}"""


def recomputed() -> ir.Model:
    """A chain whose inner values are computed again."""
    return recompute(gt.grad(parse(CHAIN), loss="sum:y", wrt=["x"]).model, ["h2", "h3"])


DAMAGE = {
    "another factor": ("Mul", lambda n: n.inputs[1].const_value.numpy().fill(1)),
    "part of a shape": ("Shape", lambda n: n.attributes.add(ir.AttrInt64("start", 1))),
    "the shape of another value": (
        "Shape", lambda n: n.replace_input_with(0, n.graph.inputs[0]),
    ),
    "a sum that is no scalar": (
        "ReduceSum", lambda n: n.attributes.add(ir.AttrInt64("keepdims", 1)),
    ),
    "a difference": ("Add", lambda n: setattr(n, "op_type", "Sub")),
    "another domain": ("Add", lambda n: setattr(n, "domain", "com.acme")),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_metadata_is_not_believed(what):
    model = recomputed()
    barrier(model)
    op_type, damage = DAMAGE[what]
    damage(next(n for n in model.graph if n.op_type == op_type and BARRIER in n.metadata_props))
    before = lines(model)

    assert strip_barriers(model) == 0
    assert lines(model) == before


def test_a_barrier_whose_value_is_an_output_stays():
    model = recomputed()
    barrier(model)
    (value,) = (n.outputs[0] for n in model.graph if n.op_type == "Reshape" and len(n.inputs) == 2
                and n.inputs[0].name == "h1")  # fmt: skip
    model.graph.outputs.append(value)

    assert strip_barriers(model) == 0

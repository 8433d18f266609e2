import numpy as np
import onnx_ir as ir
import pytest
from graphs import floats, parse

import gradtool as gt
from gradtool.passes.plain_casts import plain_casts

LIKE = """g (float[3] x, {other}[2] z) => (float[3] y) {{
    a = CastLike (x, z)
    b = Cast <to = 1> (a)
    y = Tanh (b)
}}"""


@pytest.mark.parametrize("other", ["float16", "bfloat16", "float", "double", "int64", "int8"])
def test_the_type_of_the_other_is_written_out(other):
    model = gt.load(ir.to_proto(parse(LIKE.format(other=other))))
    x, z = floats(3), np.zeros(2, model.graph.inputs[1].dtype.numpy())
    expected = gt.run(model, {"x": x, "z": z}).outputs["y"]

    assert plain_casts(model) == 1

    (cast, _, _) = model.graph
    assert (cast.op_type, len(cast.inputs)) == ("Cast", 1)
    assert cast.attributes.get_int("to") == model.graph.inputs[1].dtype.value
    assert np.array_equal(gt.run(model, {"x": x, "z": z}).outputs["y"], expected)


def test_a_type_that_is_not_known_stays():
    model = parse(LIKE.format(other="double"))
    model.graph.inputs[1].type = None

    assert plain_casts(model) == 0
    assert model.graph.node(0).op_type == "CastLike"

"""A LayerNormalization whose statistics are of another type than float."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper


def layer_norm(stash: int) -> onnx.ModelProto:
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"], stash_type=stash)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 6]) for n in "xy"]
    scale = helper.make_tensor("s", TensorProto.FLOAT, [6], np.arange(1, 7) / 7)
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [scale])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(
    "stash", [TensorProto.INT32, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16]
)
def test_its_gradient_is_that_of_one_in_float(run, model, tmp_path, stash):
    path = model(layer_norm(stash))
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    line = ["--loss", "sum", "--inputs", tmp_path / "in.npz", "--save-grads"]
    found = []
    for source in (path, model(layer_norm(TensorProto.FLOAT), "float.onnx")):
        assert run("grad", source, "--loss", "sum", "-o", tmp_path / "g.onnx", "--force").code == 0
        assert run("run", source, *line, tmp_path / "out.npz", "--force").code == 0
        found.append(dict(np.load(tmp_path / "out.npz")))
    first, second = found
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_allclose(value, second[name], rtol=1e-6, atol=1e-6)

"""A source that ONNX's checker accepts, and no runtime computes."""

import onnx
import pytest

import gradtool as gt
from gradtool.graph.error_context import NodeFailed
from gradtool.io import rules

ROTARY = """<ir_version: 10, opset_import: ["" : 23]>
g (float[2, 2, 4, 6] x, float[2, 4, 2] c, float[2, 4, 2] s) => (float[2, 2, 4, 6] y) {
   y = RotaryEmbedding (x, c, s)
}"""


def test_its_node_is_named_where_the_result_is_not_valid(tmp_path, monkeypatch):
    monkeypatch.delitem(rules.RULES, "RotaryEmbedding")
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(ROTARY).SerializeToString())
    with pytest.warns(gt.GradtoolWarning):
        made = gt.grad(gt.load(tmp_path / "m.onnx"), loss="sum")
    with pytest.raises(NodeFailed, match=r"RotaryEmbedding node .*: its kernel fails on it"):
        gt.save(made, tmp_path / "g.onnx")
    assert not (tmp_path / "g.onnx").exists()

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import gradtool as gt
from gradtool.errors import ModelError
from gradtool.io.zipmap import leave_aside


def zipped(nodes=(), outputs=("maps",), classes=(0, 1)):
    """A graph that ends in a ZipMap of `p`."""
    keys = {"classlabels_int64s": list(classes)}
    made = [
        helper.make_node("Softmax", ["x"], ["p"]),
        *nodes,
        helper.make_node("ZipMap", ["p"], ["maps"], name="zip", domain="ai.onnx.ml", **keys),
    ]
    floats = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, floats))
    kinds = {"maps": maps}
    return helper.make_graph(
        made, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
        [helper.make_value_info(name, kinds.get(name, floats)) for name in outputs],
    )  # fmt: skip


def test_the_tensor_behind_the_maps_becomes_the_output():
    graph = zipped()
    said = leave_aside(graph)

    assert said == ("ZipMap 'zip': the output is 'p', the tensor it maps",)
    assert [node.op_type for node in graph.node] == ["Softmax"]
    assert [value.name for value in graph.output] == ["p"]


def test_a_tensor_that_is_an_output_already_stays_one():
    graph = zipped(outputs=("p", "maps"))
    leave_aside(graph)

    assert [value.name for value in graph.output] == ["p"]


def test_maps_that_are_read_stay():
    graph = zipped([helper.make_node("SequenceLength", ["maps"], ["n"])])

    assert leave_aside(graph) == ()
    assert len(graph.node) == 3


def write(path, graph):
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


def test_a_classifier_that_ends_in_maps_is_loaded_and_trained(tmp_path):
    model = gt.load(write(tmp_path / "m.onnx", zipped()))
    training = gt.grad(model)
    result = gt.run(training, {"x": np.zeros((1, 2), np.float32), "labels": np.array([1])})

    assert len(model.meta["gradtool.left_aside"]) == 1
    assert result.loss == pytest.approx(np.log(2))


def test_it_is_said_on_the_command_line(run, tmp_path):
    outcome = run("grad", write(tmp_path / "m.onnx", zipped()))

    assert outcome.code == 0
    assert "ZipMap 'zip': the output is 'p'" in outcome.err
    onnx.checker.check_model(onnx.load(tmp_path / "m.grad.onnx"), full_check=True)


def test_other_maps_are_refused(tmp_path):
    graph = zipped()
    graph.node.append(helper.make_node("SequenceLength", ["maps"], ["n"]))

    with pytest.raises(ModelError, match="graph output 'maps': maps are not supported"):
        gt.load(write(tmp_path / "m.onnx", graph))

"""A model that is written part by part has the bytes of one that is written at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from conftest import trials
from graphs import parse
from hypothesis import given, settings
from random_graphs import Recipe, assemble, recipes

import gradtool as gt
from gradtool.io import streamed_proto, wire

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "samples").glob("*.onnx"))


def at_once(model: ir.Model) -> bytes:
    return ir.serde.serialize_model(model).SerializeToString(deterministic=True)


def in_parts(model: ir.Model) -> bytes:
    graph = streamed_proto.Message()
    head = streamed_proto.before_nodes(model)
    graph.add(head)
    assert not head.ByteSize()
    for run in streamed_proto.runs(model):
        streamed_proto.add_run(graph, run)
    return b"".join(streamed_proto.model_pieces(graph, streamed_proto.around(model)))


@pytest.fixture(params=[1, 3, 1000], autouse=True)
def nodes(request, monkeypatch):
    """How many nodes a part has."""
    monkeypatch.setattr(streamed_proto, "NODES", request.param)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_samples_have_the_same_bytes(path):
    model = gt.grad(gt.load(path)).model

    assert in_parts(model) == at_once(model)


@settings(max_examples=trials(25), deadline=None)
@given(recipes(most=10))
def test_random_graphs_have_the_same_bytes(recipe: Recipe):
    model = assemble(recipe, np.float32)

    assert in_parts(model) == at_once(model)


FUNCTIONS = """<ir_version: {version}, opset_import: ["": 20, "own": 1], producer_name: "p",
  producer_version: "1", domain: "d", model_version: 3, doc_string: "of the model",
  metadata_props: ["a": "b"]>
g (float[N, 2] x) => (float[N, 2] y, float[N, 2] z) <float[1] w = {{1.0}}, float[2] v>
{{ a = Relu (x) y = own.twice (a) z = Add (y, w) }}
<domain: "own", opset_import: ["": 20]> twice (x) => (y) {{ h = Neg (x) y = Add (h, x) }}"""


@pytest.mark.parametrize("version", [8, 9, 10, 13])
def test_all_that_a_model_has_is_written_where_it_would_be(version):
    proto = onnx.parser.parse_model(FUNCTIONS.format(version=version))
    proto = onnx.shape_inference.infer_shapes(proto)
    proto.graph.doc_string = "of the graph"
    proto.graph.metadata_props.add(key="k", value="v")
    for name in ("x", "w", "a", "z"):
        kept = proto.graph.quantization_annotation.add(tensor_name=name)
        kept.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    model = ir.serde.deserialize_model(proto)

    assert in_parts(model) == at_once(model)
    assert onnx.ModelProto.FromString(in_parts(model)).graph.quantization_annotation


def test_a_graph_without_anything_is_left_out():
    model = ir.Model(ir.Graph((), (), nodes=(), opset_imports={"": 20}), ir_version=10)

    assert in_parts(model) == at_once(model)


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**14, 2**31 - 1, 2**40])
def test_lengths_are_written_as_protobuf_does(number):
    """As the payload of a field, whose tag is a byte."""
    message = onnx.ModelProto(model_version=number)

    assert wire.varint(number) == message.SerializeToString()[1:]


def test_more_bytes_than_a_protobuf_holds_are_refused(monkeypatch):
    model = parse("g (float[2] x) => (y) { y = Relu (x) }")
    monkeypatch.setattr(streamed_proto, "MOST_BYTES", len(at_once(model)))
    assert in_parts(model) == at_once(model)

    monkeypatch.setattr(streamed_proto, "MOST_BYTES", len(at_once(model)) - 1)
    with pytest.raises(streamed_proto.TooLarge, match="bytes"):
        in_parts(model)

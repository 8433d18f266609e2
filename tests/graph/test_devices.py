"""Placement on devices: clones, gradients and bodies of composites stay where their origin is."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from graphs import parse
from onnx_ir import ModelConfiguration, NodeDeviceConfiguration, ShardedDim, ShardingSpec

import gradtool as gt
from gradtool.graph.devices import place_gradient, place_like

PAIR = ModelConfiguration("pair", 2)
LAYERS = """g (float[4, 6] x, float[6, 8] w, float[8, 3] v) => (y) {
    a = MatMul (x, w) b = Tanh (a) c = Exp (b) d = Add (c, b) y = MatMul (d, v)
}"""
NORM = """g (float[4, 3, 5, 5] x, float[6, 3, 3, 3] w) => (y) {
    a = Conv (x, w) y = Tanh (a)
}"""


def placed(text: str, weights: str, node: int, *values: str, stage: int = 1) -> ir.Model:
    """A model, one node of which lies on two devices, the values named being sharded."""
    model = parse(text, weights)
    model.ir_version = 11  # the first that has placement
    model.device_configurations = (PAIR,)
    chosen = model.graph.node(node)
    own = {v.name: v for v in (*chosen.inputs, *chosen.outputs)}
    specs = tuple(ShardingSpec(own[name], (0, 1), (), (ShardedDim(0),)) for name in values)
    chosen.device_configurations = (NodeDeviceConfiguration(PAIR, specs, pipeline_stage=stage),)
    return model


def sharded(node: ir.Node) -> list[str]:
    return [s.value.name for c in node.device_configurations for s in c.sharding_specs]


def backward_of(model: ir.Model, source: str) -> list[ir.Node]:
    return [
        n for n in model.graph
        if n.metadata_props["gradtool.stage"] == "backward"
        and n.metadata_props["gradtool.source"] == source
    ]  # fmt: skip


def test_a_node_without_placement_gives_none():
    model = parse(LAYERS, "w v")
    first, second = model.graph.node(0), model.graph.node(1)
    place_like(second, first, {})
    place_gradient(second, first, {})

    assert second.device_configurations == ()


def test_sharding_of_values_that_a_node_does_not_have_is_left_out():
    model = placed(LAYERS, "w v", 0, "x", "w", "a")
    first, second = model.graph.node(0), model.graph.node(1)
    place_like(second, first, {})

    assert sharded(second) == ["a"]
    assert second.device_configurations[0].pipeline_stage == 1


def test_moved_values_are_sharded_as_those_they_stand_for():
    model = placed(LAYERS, "w v", 1, "a", "b")
    tanh, exp = model.graph.node(1), model.graph.node(2)
    place_like(exp, tanh, {tanh.inputs[0]: exp.inputs[0], tanh.outputs[0]: exp.outputs[0]})

    assert sharded(exp) == ["b", "c"]


def test_the_gradient_of_a_placed_node_lies_on_its_devices_and_stage():
    model = placed(LAYERS, "w v", 0, stage=3)
    training = gt.grad(model, loss="mean").model
    name = next(n.name for n in training.graph if n.op_type == "MatMul")
    made = backward_of(training, name)

    assert made
    assert {c.pipeline_stage for n in made for c in n.device_configurations} == {3}
    assert all(n.device_configurations for n in made)


def test_other_gradients_are_placed_nowhere():
    training = gt.grad(placed(LAYERS, "w v", 0), loss="mean").model
    exp = next(n.name for n in training.graph if n.op_type == "Exp")

    assert not any(n.device_configurations for n in backward_of(training, exp))


def test_a_gradient_is_sharded_as_its_value():
    """dw = xᵀ · da: w and its gradient have one shape, and so have a and da."""
    model = placed(LAYERS, "w v", 0, "w", "a", "x")
    graph = gt.grad(model, loss="mean")
    last = next(n for n in graph.model.graph if "w_grad" in [v.name for v in n.outputs])
    gradient_of_a = next(v for v in last.inputs if [*v.shape] == [4, 8])

    assert set(sharded(last)) >= {"w_grad", gradient_of_a.name}
    assert all(list(s.sharded_dims) == [ShardedDim(0)]
               for s in last.device_configurations[0].sharding_specs)  # fmt: skip


@pytest.mark.parametrize("accumulate", ["chain", "sum"])
def test_each_term_of_a_sum_of_gradients_is_sharded_as_the_value(accumulate):
    """b is read twice: by Exp and, placed here, by Add."""
    model = placed(LAYERS, "w v", 3, "b")
    training = gt.grad(model, loss="mean", accumulate=accumulate).model
    (add,) = [n.name for n in training.graph if n.op_type == "Add" and n.outputs[0].name == "d"]
    made = backward_of(training, add)

    for node in made:
        assert node.device_configurations
    shapes = {v.name: [*v.shape] for n in training.graph for v in n.outputs}
    assert all(shapes[name] == [4, 8] for n in made for name in sharded(n) if name in shapes)


def test_a_written_file_keeps_the_placement_of_composites(tmp_path):
    """The gradient of Conv is two composites, which the file holds as their bodies."""
    training = gt.grad(placed(NORM, "w", 0, "w", stage=2), loss="mean").model
    gt.save(training, tmp_path / "t.onnx")
    plain = ir.load(tmp_path / "t.onnx")
    again = gt.load(tmp_path / "t.onnx")

    inside = [n for n in plain.graph if "ConvGrad" in n.metadata_props.get("gradtool.call", "")]
    folded = [n for n in again.graph if n.op_type.startswith("ConvGrad")]
    assert inside
    assert folded
    for node in (*inside, *folded):
        assert [c.pipeline_stage for c in node.device_configurations] == [2]


def test_placement_outlives_mirroring(tmp_path):
    model = gt.grad(placed(LAYERS, "w v", 2, "b", "c", stage=1), loss="mean").model
    written = gt.recompute(model, gt.Checkpoints(["a"])).model
    gt.save(written, tmp_path / "r.onnx")
    nodes = [n for n in ir.load(tmp_path / "r.onnx").graph if n.op_type == "Exp"]

    assert all([c.pipeline_stage for c in n.device_configurations] == [1] for n in nodes)

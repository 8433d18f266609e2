"""The part of the model that a node is of, by exporter, by names, by parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from conftest import build
from graphs import parse

from gradtool import api
from gradtool.graph.metadata import SCOPES, SOURCE
from gradtool.program.modules import Modules
from gradtool.workloads import plans

ROOT = Path(__file__).parents[2]


def module(name, **props):
    found = parse("g (float[2] x) => (float[2] y) { y = Exp (x) }").graph
    (node,) = found
    node.name = name
    node.metadata_props.update(props)
    return Modules(found).of(node)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("layer1.0.conv1", "layer1.0"),
        ("/encoder/layer.3/attn/MatMul", "encoder.layer.3.attn"),
        ("/layer1/layer1.0/conv/Conv", "layer1.0.conv"),
        ("/layer1/layer1.0/layer1.0.1/Conv", "layer1.0.1"),
        ("Conv_0", ""),
        ("/Conv", ""),
        ("//", ""),
        ("...", ""),
        ("", ""),
    ],
)
def test_names_of_nodes(name, expected):
    assert module(name) == expected


def test_the_exporter_comes_before_the_name():
    assert module("a/b/Exp", **{SCOPES: "['', 'head', 'exp']"}) == "head"


def test_backward_is_of_the_module_of_its_forward_node():
    text = "g (float[2] x) => (float[2] y) { h = Exp (x) y = Exp (h) }"
    found = parse(text).graph
    first, second = found
    first.name, second.name = "net/one/Exp", "grad/other/Mul"
    second.metadata_props[SOURCE] = "net/one/Exp"

    assert Modules(found).of(second) == "net.one"
    second.metadata_props[SOURCE] = "net/gone/Exp"
    assert Modules(found).of(second) == "net.gone"


@pytest.mark.parametrize("between", [0, 1, 3, 4])
def test_a_parameter_names_the_module_of_who_reads_it_also_through_layouts(between):
    turns = " ".join(f"t{n + 1} = Transpose (t{n})" for n in range(between))
    turns = turns.replace("(t0)", "(w)")
    read = f"t{between}" if between else "w"
    text = f"g (float[2, 2] x) => (float[2, 2] y) {{ {turns} y = MatMul (x, {read}) }}"
    made = build(text, w=np.ones((2, 2), np.float32))
    found = ir.from_proto(made).graph
    found.initializers["w"].name = "blocks.one.weight"
    *_, last = found
    last.name = "node_MatMul_7"

    assert Modules(found).of(last) == ("blocks.one" if between < 4 else "")


def test_every_step_of_a_training_graph_of_a_sample_has_a_module():
    training = api.grad(api.load(ROOT / "samples" / "cnn.onnx", dims={"batch": 2})).model
    program = plans.workload(training).program

    found = {step.module for step in program.steps}
    assert {"stem", "block1", "block2", "block2.project", "loss"} <= found
    assert all(step.module for step in program.steps if step.stage == "backward"
               and step.source.startswith("block"))  # fmt: skip

"""Gradients of convolution, pooling and normalisation where batch and image sizes are unknown."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from cases import Case, Floats
from checkers import build, differentiated, evaluate

from gradtool.emit.builder import Builder
from gradtool.errors import NotDifferentiable
from gradtool.ops.composites.calls import inline
from gradtool.ops.driver import differentiate

SPATIAL = [
    Case("Conv", ((2, 3, 7, 8), (4, 3, 3, 2)), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    Case("Conv", ((2, 4, 7, 8), (6, 2, 3, 3)), {"group": 2, "dilations": [1, 2]}),
    Case("Conv", ((2, 3, 7, 8), (6, 3, 1, 1))),
    Case("Conv", ((2, 3, 7, 8), (4, 3, 3, 4)), {"auto_pad": "SAME_UPPER"}),
    Case("ConvTranspose", ((2, 3, 7, 8), (3, 4, 3, 3)),
         {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("ConvTranspose", ((2, 3, 4, 5), (3, 4, 3, 3)), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    Case("ConvTranspose", ((2, 4, 4, 5), (4, 2, 2, 2)), {"group": 2, "strides": [2, 2]}),
    Case("MaxPool", ((2, 3, 7, 8),), {"kernel_shape": [3, 2], "strides": [2, 2]}),
    Case("MaxPool", ((2, 3, 7, 8),), {"kernel_shape": [3, 2], "storage_order": 1}),
    Case("AveragePool", ((2, 3, 7, 8),), {"kernel_shape": [3, 2], "pads": [1, 1, 2, 0]}),
    Case("AveragePool", ((2, 3, 7, 8),), {"kernel_shape": [3, 3], "strides": [2, 2]}),
    Case("AveragePool", ((2, 3, 7, 8),), {"kernel_shape": [3, 3], "strides": [2, 2],
                                          "ceil_mode": 1}),
    Case("LpPool", ((2, 3, 7, 8),), {"kernel_shape": [3, 2], "strides": [2, 2]}),
    Case("GlobalAveragePool", ((2, 3, 7, 8),)),
    Case("GlobalMaxPool", ((2, 3, 7, 8),)),
    Case("GlobalLpPool", ((2, 3, 7, 8),)),
    Case("BatchNormalization", ((2, 3, 4, 5), (3,), (3,), (3,), Floats((3,), low=0.5))),
    Case("ai.gradtool::BatchNormalizationTraining", ((2, 3, 4, 5), (3,), (3,), (3,), (3,)),
         {"epsilon": 1e-3, "momentum": 0.8}, 5),
    Case("InstanceNormalization", ((2, 3, 4, 5), (3,), (3,))),
    Case("GroupNormalization", ((2, 6, 4, 5), (6,), (6,)), {"num_groups": 3}, opset=21),
    Case("LRN", ((2, 5, 4, 5),), {"size": 3}),
    Case("LayerNormalization", ((2, 3, 4, 5), (5,), (5,))),
    Case("LpNormalization", ((2, 3, 4, 5),), {"axis": 1}),
    Case("MeanVarianceNormalization", ((2, 3, 4, 5),), {"axes": [0, 2, 3]}),
]  # fmt: skip


def with_sizes(case):
    inputs = tuple(Floats(i) if isinstance(i, tuple) else i for i in case.inputs)
    return Case(case.op, inputs, case.attributes, case.outputs, case.opset)


def unknown(case, sizes):
    """The gradient graph of a case whose first input has the given sizes."""
    model, _ = build(case, np.float32)
    node = model.graph.node("node")
    node.inputs[0].shape = ir.Shape(sizes)
    op = Builder(model)
    op.infer(node)
    heads = {}
    for value in node.outputs:
        seed = ir.Value(name=f"c_{value.name}", shape=value.shape, type=value.type)
        model.graph.inputs.append(seed)
        heads[value] = seed
    made = differentiate(op, heads, list(node.inputs))
    names = []
    for grad in made.gradients.values():
        out = op.Identity(grad)
        names.append(out.name)
        model.graph.outputs.append(out)
    return model, names


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", SPATIAL, ids=lambda c: f"{c.op}{c.attributes}")
def test_gradients_do_not_need_the_sizes_of_images(case):
    ort = pytest.importorskip("onnxruntime")
    case = with_sizes(case)
    known, feeds, names = differentiated(case, np.float32)
    ours = evaluate(known, feeds)
    sizes = ["batch", case.inputs[0].shape[1], "height", "width"]
    if case.op == "LayerNormalization":
        sizes[1], sizes[3] = "channels", case.inputs[0].shape[3]
    model, others = unknown(case, sizes)

    inline(model)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    proto = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    theirs = session.run(others, {k: v for k, v in feeds.items() if k in wanted})

    for mine, other in zip(names, theirs, strict=True):
        np.testing.assert_allclose(ours[mine], other, rtol=3e-4, atol=3e-5)


@pytest.mark.parametrize(
    ("op", "inputs", "given"),
    [
        ("Conv", ((2, 3, 7, 8), (4, 3, 3, 3)), {}),
        ("ConvTranspose", ((2, 3, 7, 8), (3, 4, 3, 3)), {"output_shape": [14, 16]}),
        ("AveragePool", ((2, 3, 7, 8),), {"kernel_shape": [3, 3]}),
    ],
)
def test_same_padding_with_strides_needs_the_sizes(op, inputs, given):
    given = given | {"auto_pad": "SAME_UPPER", "strides": [2, 2]}
    case = with_sizes(Case(op, inputs, given))

    with pytest.raises(NotDifferentiable, match=r"give (it|them) with --dim"):
        unknown(case, [2, 3, "height", "width"])

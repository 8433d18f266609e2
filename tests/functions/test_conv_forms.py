"""The gradients of a convolution are written in forms by size: each computes what kernels do."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from conftest import trials
from graphs import floats
from hypothesis import given, settings
from hypothesis import strategies as st

import gradtool as gt
from gradtool.emit.builder import Builder
from gradtool.ops.composites.calls import inline

onnxruntime = pytest.importorskip("onnxruntime")


@st.composite
def convolutions(draw):
    """Sizes and attributes of a convolution that has at least one window."""
    rank = draw(st.integers(1, 3))

    def axes(least, most):
        return draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank))

    group, batch = draw(st.sampled_from([1, 1, 2, 3])), draw(st.integers(1, 3))
    each, maps = draw(st.sampled_from([1, 2, 9])), group * draw(st.integers(1, 3))
    kernel, dilations = axes(1, 4), axes(1, 2)
    strides = draw(st.sampled_from([[1] * rank, axes(1, 3)]))
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [draw(st.integers(0, e + 1)) for e in (*extents, *extents)]
    image = [
        max(1, e - a - b) + draw(st.integers(0, 6))
        for e, a, b in zip(extents, pads[:rank], pads[rank:], strict=True)
    ]
    out = [
        (n + a + b - e) // s + 1
        for n, a, b, e, s in zip(image, pads[:rank], pads[rank:], extents, strides, strict=True)
    ]
    shapes = {
        "x": (batch, group * each, *image), "w": (maps, each, *kernel), "dy": (batch, maps, *out)
    }  # fmt: skip
    return shapes, {"group": group, "strides": strides, "dilations": dilations, "pads": pads}


def gradients_of(shapes, attributes) -> ir.Model:
    values = {
        name: ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
        for name, shape in shapes.items()
    }
    graph = ir.Graph(values.values(), [], nodes=[], opset_imports={"": 20, "ai.gradtool": 1})
    op = Builder(ir.Model(graph, ir_version=10))
    x, w, dy = values.values()
    dx = op.ConvGradInput(dy, w, op.constant(list(shapes["x"])), **attributes)
    dw = op.ConvGradWeight(x, dy, kernel_shape=list(shapes["w"][2:]), **attributes)
    dx.name, dw.name = "dx", "dw"
    graph.outputs.extend([dx, dw])
    return op.model


@pytest.mark.exhaustive
@settings(max_examples=trials(120), derandomize=True, database=None, deadline=None)
@given(convolutions())
def test_forms_compute_what_kernels_do(convolution):
    shapes, attributes = convolution
    model = gradients_of(shapes, attributes)
    feeds = {name: floats(*shape) for name, shape in shapes.items()}
    ours = gt.run(model, feeds).outputs

    inline(model)

    opened = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    theirs = opened.run(["dx", "dw"], feeds)
    for name, found in zip(("dx", "dw"), theirs, strict=True):
        assert found.shape == shapes[name[1]]
        scale = np.abs(ours[name]).max(initial=0.0) + 1e-9
        assert np.abs(found - ours[name]).max(initial=0.0) <= 2e-5 * scale

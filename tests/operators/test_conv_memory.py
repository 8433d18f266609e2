"""Kernels of convolution, pooling and normalisation allocate nothing of size."""

from __future__ import annotations

import math

import numpy as np
import pytest
from checkers import check_memory

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import find

TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
OPEN = {"strides": [1, 1], "dilations": [1, 1], "pads": [0, 0, 0, 0], "group": 1}
CONVOLUTIONS = {
    "plain": ((4, 16, 48, 64), (24, 16, 3, 3), OPEN),
    "padded": ((4, 16, 48, 64), (24, 16, 3, 3), OPEN | {"pads": [1, 1, 1, 1]}),
    "strided": ((4, 16, 49, 64), (24, 16, 3, 3), OPEN | {"strides": [2, 2]}),
    "pointwise": ((4, 16, 48, 64), (24, 16, 1, 1), OPEN),
    "grouped": ((4, 16, 48, 64), (16, 4, 3, 3), OPEN | {"group": 4}),
    "depthwise": ((4, 16, 48, 64), (16, 1, 3, 3), OPEN | {"group": 16, "pads": [1, 1, 1, 1]}),
}


def array(*shape, dtype=np.float32):
    return np.random.default_rng(3).uniform(0.1, 0.9, shape).astype(dtype)


def spec(*shape, dtype=np.float32):
    return Spec(shape, np.dtype(dtype))


@TYPES
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_take_no_memory(name, dtype):
    x, w, given = CONVOLUTIONS[name]
    sizes = zip(x[2:], w[2:], given["strides"], given["pads"][:2], strict=True)
    y = (x[0], w[0], *((n + 2 * p - k) // s + 1 for n, k, s, p in sizes))
    arrays = {n: array(*s, dtype=dtype) for n, s in (("x", x), ("w", w), ("y", y))}

    bias = array(w[0], dtype=dtype)
    check_memory("Conv", [arrays["x"], arrays["w"], bias], [spec(*y, dtype=dtype)], **given)
    check_memory(
        "ConvTranspose", [arrays["y"], arrays["w"], None], [spec(*x, dtype=dtype)], **given
    )
    check_memory(
        "ai.gradtool::ConvGradInput", [arrays["y"], arrays["w"], np.array(x)],
        [spec(*x, dtype=dtype)], **given,
    )  # fmt: skip
    check_memory(
        "ai.gradtool::ConvGradWeight", [arrays["x"], arrays["y"]], [spec(*w, dtype=dtype)],
        kernel_shape=w[2:], **given,
    )  # fmt: skip


def test_the_workspace_of_a_convolution_does_not_grow_with_the_batch():
    def bytes_for(batch, op, *shapes, **given):
        inputs = [spec(batch, *s[1:]) if s[0] == 0 else spec(*s) for s in shapes]
        *inputs, out = inputs
        domain, _, name = op.rpartition("::")
        kernel = find(domain, name, 20)
        return sum(s.bytes for s in kernel.workspace(inputs, [out], given))

    x, w, y = (0, 64, 56, 56), (64, 64, 3, 3), (0, 64, 54, 54)
    for op, shapes in (("Conv", (x, w, y)), ("ai.gradtool::ConvGradWeight", (x, y, w))):
        more = {"kernel_shape": [3, 3]} if "Weight" in op else {}
        small, large = (bytes_for(n, op, *shapes, **OPEN, **more) for n in (8, 64))

        assert small == large <= 3 << 20


@TYPES
def test_pooling_takes_no_memory(dtype):
    x, y = (8, 16, 49, 64), (8, 16, 25, 32)
    given = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    data, dy = array(*x, dtype=dtype), array(*y, dtype=dtype)
    indices = np.random.default_rng(1).integers(0, data.size, y)
    more = given | {"dilations": [1, 1]}

    check_memory("MaxPool", [data], [spec(*y, dtype=dtype)], **given)
    check_memory("MaxPool", [data], [spec(*y, dtype=dtype), spec(*y, dtype=np.int64)], **given)
    check_memory(
        "ai.gradtool::MaxPoolTraining", [data], [spec(*y, dtype=dtype), spec(*y, dtype=np.uint16)],
        **given,
    )  # fmt: skip
    check_memory("AveragePool", [data], [spec(*y, dtype=dtype)], **given)
    check_memory("LpPool", [data], [spec(*y, dtype=dtype)], **given)
    check_memory("LpPool", [data], [spec(*y, dtype=dtype)], **given, p=3)
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        check_memory(op, [data], [spec(*x[:2], 1, 1, dtype=dtype)])
    out = [spec(*x, dtype=dtype)]
    for order in (0, 1):
        check_memory(
            "ai.gradtool::MaxPoolGrad", [dy, indices, np.array(x)], out, storage_order=order
        )
    places = (indices % math.prod(x[2:])).astype(np.uint16)
    check_memory("ai.gradtool::MaxPoolGrad", [dy, places, np.array(x)], out, storage_order=0)
    check_memory(
        "ai.gradtool::AveragePoolGrad", [dy, np.array(x)], out, **more, count_include_pad=0
    )
    check_memory("ai.gradtool::LpPoolGrad", [data, dy, dy], out, **more, p=2)
    column = array(*x[:2], 1, 1, dtype=dtype)
    check_memory("ai.gradtool::GlobalMaxPoolGrad", [data, column], out)
    check_memory("ai.gradtool::GlobalLpPoolGrad", [data, column, column], out, p=3)


NORM = (8, 32, 48, 64)


@TYPES
def test_layer_normalisation_takes_no_memory(dtype):
    x, row = array(*NORM, dtype=dtype), array(64, dtype=dtype)
    statistic = array(*NORM[:-1], 1)
    wanted, small = spec(*NORM, dtype=dtype), spec(*NORM[:-1], 1)
    tail = spec(64, dtype=dtype)

    check_memory("LayerNormalization", [x, row, row], [wanted, small, small])
    check_memory(
        "ai.gradtool::LayerNormalizationGrad", [x, row, statistic, statistic, x],
        [wanted, tail, tail], axis=3, epsilon=1e-5,
    )  # fmt: skip
    check_memory(
        "ai.gradtool::RMSNormalizationGrad", [x, row, x], [wanted, tail], axis=3, epsilon=1e-5
    )
    check_memory("LpNormalization", [x], [wanted], axis=1)
    check_memory("ai.gradtool::LpNormalizationGrad", [x, x], [wanted], axis=1, p=2)


@TYPES
def test_channel_normalisation_takes_no_memory(dtype):
    x, c = array(*NORM, dtype=dtype), array(32)
    narrow = array(32, dtype=dtype)
    wanted, channel, own = spec(*NORM, dtype=dtype), spec(32), spec(32, dtype=dtype)

    check_memory("BatchNormalization", [x, c, c, c, c], [wanted])
    check_memory(
        "ai.gradtool::BatchNormalizationTraining", [x, c, c, c, c], [wanted, *[channel] * 4],
        epsilon=1e-5, momentum=0.9,
    )  # fmt: skip
    check_memory(
        "ai.gradtool::BatchNormalizationGrad", [x, c, c, c, x], [wanted, channel, channel],
        epsilon=1e-5,
    )  # fmt: skip
    check_memory("ai.gradtool::BatchNormalizationGradScale", [x, c, c, x], [channel])
    check_memory("InstanceNormalization", [x, narrow, narrow], [wanted])
    for groups in (1, 8):
        check_memory(
            "ai.gradtool::GroupNormalizationGrad", [x, narrow, x], [wanted, own, own],
            num_groups=groups, epsilon=1e-5,
        )  # fmt: skip


IN_PLACE = [
    ("LayerNormalization", [NORM, (64,), (64,)], 1, {}),
    ("LayerNormalization", [(2, 300000), (300000,), (300000,)], 1, {}),
    ("InstanceNormalization", [NORM, (32,), (32,)], 1, {}),
    ("GroupNormalization", [NORM, (32,), (32,)], 1, {"num_groups": 4}),
    ("BatchNormalization", [NORM, (32,), (32,), (32,), (32,)], 1, {}),
    ("ai.gradtool::BatchNormalizationTraining", [NORM, (32,), (32,), (32,), (32,)], 5,
     {"epsilon": 1e-5, "momentum": 0.9}),
    ("LpNormalization", [NORM], 1, {"axis": 1}),
    ("ai.gradtool::LayerNormalizationGrad", [NORM, (64,), None, None, NORM], 3,
     {"axis": 3, "epsilon": 1e-5}),
    ("ai.gradtool::RMSNormalizationGrad", [(2, 300000), (300000,), (2, 300000)], 2,
     {"axis": 1, "epsilon": 1e-5}),
    ("ai.gradtool::GroupNormalizationGrad", [NORM, (32,), NORM], 3,
     {"num_groups": 2, "epsilon": 1e-5}),
    ("ai.gradtool::BatchNormalizationGrad", [NORM, (32,), (32,), (32,), NORM], 3,
     {"epsilon": 1e-5}),
    ("ai.gradtool::LpNormalizationGrad", [NORM, NORM], 1, {"axis": 1, "p": 1}),
]  # fmt: skip


@pytest.mark.sample(3)
@TYPES
@pytest.mark.parametrize(("op", "shapes", "count", "given"), IN_PLACE)
def test_results_may_take_the_place_of_inputs(op, shapes, count, given, dtype):
    domain, _, name = op.rpartition("::")
    kernel = find(domain, name, 21)
    rng = np.random.default_rng(5)
    inputs = [None if s is None else rng.uniform(0.1, 0.9, s).astype(dtype) for s in shapes]
    small = np.float32 if "Training" in op else dtype
    outs = [spec(*shapes[0], dtype=dtype)]
    outs += [spec(*shapes[1], dtype=small) for _ in range(count - 1)]
    specs = [None if i is None else spec(*i.shape, dtype=dtype) for i in inputs]
    work = [np.empty(s.shape, s.dtype) for s in kernel.workspace(specs, outs, given)]
    apart = [np.empty(s.shape, s.dtype) for s in outs]
    kernel.function(np, *inputs, **kernel.buffers(apart, work), **given)

    for slot in kernel.may_inplace:
        own = [i if i is None else i.copy() for i in inputs]
        shared = [own[slot], *(np.empty_like(a) for a in apart[1:])]
        kernel.function(np, *own, **kernel.buffers(shared, work), **given)

        for first, second in zip(apart, shared, strict=True):
            np.testing.assert_array_equal(first, second)

"""Kernels of the layout and index families allocate nothing of size."""

from __future__ import annotations

import numpy as np
import pytest
from cases import integers
from checkers import check_memory

from gradtool.graph.specs import Spec

F32 = np.dtype(np.float32)
RNG = np.random.default_rng(5)


def floats(*shape):
    return RNG.standard_normal(shape).astype(F32)


def scales(*values):
    return np.array(values, F32)


X = floats(64, 64, 256)
PICTURE = floats(2, 64, 64, 64)
SHAPE = integers(X.shape)
ROWS = RNG.integers(-1000, 1000, (4, 512))
ELEMENTS = RNG.integers(-64, 64, X.shape)

LAYOUT = {
    "Reshape": ((X, integers(64, -1)), (64, 64 * 256), {}),
    "Transpose": ((X,), (256, 64, 64), {"perm": [2, 0, 1]}),
    "Expand": ((X[:1], SHAPE), X.shape, {}),
    "Slice": ((X, integers([0]), integers([64]), integers([1]), integers([2])), (64, 32, 256), {}),
    "ai.gradtool::SliceGrad": (
        (X[:, :32], SHAPE, integers([0]), integers([32]), integers([1])),
        X.shape,
        {},
    ),
    "Concat": ((X, X), (64, 128, 256), {"axis": 1}),
    "Tile": ((X[:16], integers(4, 1, 1)), X.shape, {}),
    "Trilu": ((X,), X.shape, {}),
    "CenterCropPad": ((X, integers(60, 70, 256)), (60, 70, 256), {}),
    "ConstantOfShape": ((SHAPE,), X.shape, {}),
    "Range": (tuple(map(np.asarray, (0.0, 1e6, 1.0))), (1_000_000,), {}),
    "DepthToSpace": ((PICTURE,), (2, 16, 128, 128), {"blocksize": 2}),
    "SpaceToDepth": ((PICTURE,), (2, 256, 32, 32), {"blocksize": 2}),
}
INDEX = {
    "Gather": ((floats(1000, 512), ROWS), (4, 512, 512), {}),
    "ai.gradtool::GatherGrad": ((floats(4, 512, 512), ROWS, integers(1000, 512)), (1000, 512), {}),
    "GatherElements": ((X, ELEMENTS), X.shape, {"axis": 1}),
    "ai.gradtool::GatherElementsGrad": ((X, ELEMENTS, SHAPE), X.shape, {"axis": 1}),
    "GatherND": ((X, RNG.integers(0, 64, (2048, 2))), (2048, 256), {}),
    "ai.gradtool::GatherNDGrad": (
        (floats(2048, 256), RNG.integers(0, 64, (2048, 2)), SHAPE),
        X.shape,
        {},
    ),
    "ScatterElements": ((X, ELEMENTS, X), X.shape, {"axis": 1, "reduction": "add"}),
    "ScatterND": ((X, RNG.integers(0, 64, (2048, 2)), floats(2048, 256)), X.shape, {}),
}


@pytest.mark.parametrize("op", [*LAYOUT, *INDEX])
def test_kernels_allocate_nothing_of_size(op):
    inputs, shape, attributes = (LAYOUT | INDEX)[op]
    check_memory(op, list(inputs), [Spec(shape, F32)], **attributes)


def test_a_split_allocates_nothing_of_size():
    check_memory("Split", [X, None], [Spec((16, 64, 256), F32)] * 4, num_outputs=4)


@pytest.mark.parametrize("width", [1, 8, 64])
def test_gradients_of_narrow_rows_allocate_nothing_of_size(width):
    inputs = [floats(4, 512, width), ROWS, integers(1000, width)]
    check_memory("ai.gradtool::GatherGrad", inputs, [Spec((1000, width), F32)])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_extremes_allocate_nothing_of_size(axis):
    shape = tuple(1 if a == axis else n for a, n in enumerate(X.shape))
    check_memory("ArgMax", [X], [Spec(shape, np.dtype(np.int64))], axis=axis)


def test_one_hot_allocates_nothing_of_size():
    inputs = [RNG.integers(0, 1000, 2048), np.asarray(1000), scales(0, 1)]
    check_memory("OneHot", inputs, [Spec((2048, 1000), F32)])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_borders_allocate_nothing_of_size(mode):
    pads = integers(0, 0, 3, 2, 0, 0, 1, 4)
    padded = floats(2, 64, 68, 70)
    check_memory("Pad", [PICTURE, pads], [Spec(padded.shape, F32)], mode=mode)
    if mode != "constant":
        inputs = [padded, integers(PICTURE.shape), pads]
        check_memory("ai.gradtool::PadGrad", inputs, [Spec(PICTURE.shape, F32)], mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("factor", [2.0, 1.5, 0.5])
def test_resizes_allocate_nothing_of_size(mode, factor):
    size = int(64 * factor)
    factors = scales(1, 1, factor, factor)
    resized = floats(2, 64, size, size)
    check_memory("Resize", [PICTURE, None, factors], [Spec(resized.shape, F32)], mode=mode)
    inputs = [resized, integers(PICTURE.shape), None, factors]
    check_memory("ai.gradtool::ResizeGrad", inputs, [Spec(PICTURE.shape, F32)], mode=mode)

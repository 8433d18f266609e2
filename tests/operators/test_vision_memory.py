"""The larger kernels of the vision and quantize families take nothing beside what they declare."""

from __future__ import annotations

import numpy as np
import pytest
from checkers import check_memory

from gradtool.graph.specs import Spec

RNG = np.random.default_rng(0)
F32 = np.dtype(np.float32)
X = RNG.normal(size=(2, 16, 64, 64)).astype(F32)
GRID = RNG.uniform(-1, 1, (2, 64, 64, 2)).astype(F32)
PLACES = RNG.uniform(0, 63, (2, 4096, 2)).astype(F32)
SLOPE = RNG.normal(size=(2, 16, 4096)).astype(F32)
PIXELS = {"mode": "linear", "padding": "border", "align_corners": 0}


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample(mode):
    check_memory("GridSample", [X, GRID], [Spec(X.shape, F32)], mode=mode)


def test_samples_and_their_gradients():
    shape = np.array(X.shape)
    check_memory("ai.gradtool::Sample", [X, PLACES], [Spec(SLOPE.shape, F32)], **PIXELS)
    check_memory(
        "ai.gradtool::SampleGradInput", [PLACES, SLOPE, shape], [Spec(X.shape, F32)], **PIXELS
    )
    check_memory(
        "ai.gradtool::SampleGradPositions", [X, PLACES, SLOPE], [Spec(PLACES.shape, F32)], **PIXELS
    )


@pytest.mark.parametrize("scale", [np.float32(0.1), np.full(64, 0.1, F32)])
def test_quantisation(scale):
    x = X.reshape(-1, 64)
    zero = np.zeros(scale.shape, np.int8)
    q = x.astype(np.int8)
    check_memory("QuantizeLinear", [x, scale, zero], [Spec(x.shape, np.dtype(np.int8))])
    check_memory("DequantizeLinear", [q, scale, zero], [Spec(x.shape, F32)])
    check_memory("ai.gradtool::FakeQuantize", [x, scale, zero], [Spec(x.shape, F32)], kind=3)


def test_products_of_integers():
    a = RNG.integers(0, 255, (512, 512)).astype(np.uint8)
    made = [Spec((512, 512), np.dtype(np.int32))]
    check_memory("MatMulInteger", [a, a, np.uint8(3).reshape(()), None], made)


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("kind", ["none", "bytes", "floats", "groups", "both", "half", "nf4"])
def test_products_with_matrices_of_few_bits(kind, turned):
    rows, blocks, size = 600, 30, 950
    dtype = np.dtype(np.float16) if kind == "half" else F32
    codes = RNG.integers(0, 256, (rows, blocks, 16)).astype(np.uint8)
    scale = RNG.normal(size=(rows, blocks)).astype(dtype)
    zero = groups = None
    if kind in ("bytes", "both", "half"):
        zero = RNG.integers(0, 256, (rows, blocks // 2)).astype(np.uint8)
    elif kind == "floats":
        zero = scale
    if kind in ("groups", "both"):
        groups = RNG.integers(0, blocks, size).astype(np.int32)
    x = RNG.normal(size=(64, size if turned else rows)).astype(dtype)
    made = [Spec((64, rows if turned else size), dtype)]
    options = {"values": kind} if kind == "nf4" else {}
    check_memory(
        "ai.gradtool::QuantizedMatMul", [x, codes, scale, zero, groups], made, bits=4,
        block_size=32, size=size, turned=turned, **options,
    )  # fmt: skip

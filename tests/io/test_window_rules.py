"""Drawn convolutions are taken as they are, and refused once one of their sizes is another."""

import math

import numpy as np
import onnx_ir as ir
import pytest
from conftest import sampled

from gradtool.io import window_rules


def drawn(seed):
    """The operands of a deformable convolution by name, with their sizes, and its attributes."""
    rng = np.random.default_rng(seed)
    group, shared = (int(n) for n in rng.integers(1, 4, 2))
    channels = math.lcm(group, shared) * int(rng.integers(1, 3))
    kernel = [int(n) for n in rng.integers(1, 4, int(rng.integers(1, 4)))]
    out, taps = [int(n) for n in rng.integers(1, 5, len(kernel))], math.prod(kernel)
    made = group * int(rng.integers(1, 3))
    operands = {
        "x": [2, channels, *(n + 4 for n in out)], "w": [made, channels // group, *kernel],
        "offset": [2, shared * taps * len(kernel), *out], "bias": [made],
        "mask": [2, shared * taps, *out],
    }  # fmt: skip
    return operands, {"group": group, "offset_group": shared}


def broken(operands, given):
    inputs = [ir.Value(name=name, shape=ir.Shape(sizes)) for name, sizes in operands.items()]
    attributes = [ir.AttrInt64(name, value) for name, value in given.items()]
    return window_rules.deformable(ir.Node("", "DeformConv", inputs, attributes))


@pytest.mark.parametrize("seed", sampled(range(60)))
@pytest.mark.parametrize("what", ["x", "w", "offset", "mask"])
def test_a_deformable_convolution_has_channels_that_fit(seed, what):
    operands, given = drawn(seed)
    assert broken(operands, given) is None

    operands[what][1] += 1
    assert broken(operands, given) is not None
    operands[what][1] = "open"
    assert broken(operands, given) is None


@pytest.mark.parametrize("seed", sampled(range(60)))
@pytest.mark.parametrize("name", ["group", "offset_group"])
def test_groups_divide_channels(seed, name):
    operands, given = drawn(seed)
    given[name] += operands["x"][1]

    assert broken(operands, given) is not None

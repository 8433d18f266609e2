"""What a Slice takes: numpy's, which clamps as the standard does."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import parse

import gradtool as gt
from gradtool.operators.slicing import extent

FAR = 2**63 - 1
BOUNDS = [*range(-8, 9), FAR, -FAR - 1, 2**31 - 1, -(2**31)]


@pytest.mark.parametrize("size", [0, 1, 2, 5])
@pytest.mark.parametrize("step", [1, 2, 7, -1, -2, -7])
def test_every_pair_of_bounds_takes_what_numpy_takes(size, step):
    numbers = np.arange(size)
    for start in BOUNDS:
        for end in BOUNDS:
            first, _, count = extent(size, start, end, step)
            taken = [first + step * i for i in range(count)]
            # numpy counts a start before the beginning from -1 where it goes backwards
            start_ = max(start, -size) if size else start
            expected = numbers[slice(start_, end if end >= -size or step > 0 else None, step)]
            assert taken == expected.tolist(), (start, end)


@pytest.mark.parametrize("given", [((-7, -100, -1), 1), ((3, -2147483648, 1), 0), ((4, 9, -1), 0)])
def test_the_inferred_size_is_the_number_of_elements(given):
    (start, end, step), count = given
    model = parse(f"""g (float[5] x) => (float[o] y) {{
        s = Constant <value_ints = [{start}]> ()
        e = Constant <value_ints = [{end}]> ()
        a = Constant <value_ints = [0]> ()
        t = Constant <value_ints = [{step}]> ()
        y = Slice (x, s, e, a, t)
    }}""")

    assert list(model.graph.outputs[0].shape) == [count]
    assert gt.run(model, {"x": np.ones(5, np.float32)}).outputs["y"].shape == (count,)

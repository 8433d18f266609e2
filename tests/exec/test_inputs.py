import numpy as np
from graphs import parse

from gradtool.exec.inputs import BLOCK, random


def test_numbers_drawn_in_blocks_are_those_drawn_at_once():
    size = 2 * BLOCK + 7
    model = parse(f"g (float[{size}] x, float[3] z) => (y) {{ y = Exp (x) }}")
    drawn = random(model, 5)
    rng = np.random.default_rng(5)

    for name, count in (("x", size), ("z", 3)):
        np.testing.assert_array_equal(
            drawn[name], rng.standard_normal(count).astype(np.float32), strict=True
        )

"""A drawn sample of nodes with windows, and those that fixed what the sweep holds them to."""

from __future__ import annotations

import numpy as np
import pytest
from windowed import Windowed, draw
from windowed_checks import examine

SAME = {"auto_pad": "SAME_UPPER"}
CASES = {
    "output padding beside SAME": Windowed(
        "ConvTranspose", (3, 3), (3, 3), SAME | {"strides": [2, 2], "output_padding": [1, 1]}
    ),
    "more padding than a stride": Windowed(
        "ConvTranspose", (4,), (2,), {"auto_pad": "VALID", "dilations": [2], "output_padding": [1]}
    ),
    "an output beyond the windows": Windowed(
        "ConvTranspose", (3, 4), (2, 1), SAME | {"strides": [1, 3], "output_shape": [6, 11]}
    ),
    "a kernel smaller than a stride": Windowed(
        "AveragePool", (6, 3), (1, 2), SAME | {"strides": [3, 1], "kernel_shape": [1, 2]}
    ),
    "dilations in a convolution": Windowed("Conv", (5, 6), (3, 2), SAME | {"dilations": [2, 3]}),
    "dilations in a pool": Windowed(
        "MaxPool", (6, 7), (3, 2), SAME | {"dilations": [2, 1], "kernel_shape": [3, 2]}
    ),
    "dilations that reach a pad beyond the kernel": Windowed(
        "MaxPool", (5, 4, 5), (2, 1, 3),
        {"auto_pad": "NOTSET", "strides": [2, 2, 2], "dilations": [2, 2, 2], "ceil_mode": 1,
         "pads": [0, 0, 0, 1, 0, 1], "kernel_shape": [2, 1, 3]},
    ),
    "less than no padding behind": Windowed(
        "LpPool", (6, 4), (2, 2),
        {"auto_pad": "SAME_LOWER", "strides": [3, 3], "dilations": [2, 2], "ceil_mode": 1,
         "kernel_shape": [2, 2], "p": 1},
    ),
    "open images": Windowed(
        "ConvTranspose", (3, 4), (3, 2), SAME | {"strides": [2, 3]}, open_sizes=True
    ),
    "an open image beyond the windows": Windowed(
        "ConvTranspose", (3, 4), (2, 1), SAME | {"strides": [1, 3], "output_shape": [6, 11]},
        open_sizes=True,
    ),
    "an open image of windows that are cut": Windowed(
        "ConvTranspose", (3, 4), (3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 3],
                                          "output_padding": [1, 0], "output_shape": [6, 8]},
        open_sizes=True,
    ),
    **{
        f"open images of {op}, kernels of {kernel}": Windowed(
            op, (5, 7), (kernel, kernel), SAME | {"strides": [2, 2]} | given, open_sizes=True
        )
        for kernel in (1, 3)
        for op, given in (
            ("Conv", {"dilations": [1, 2]}),
            ("MaxPool", {"kernel_shape": [kernel] * 2}),
            ("AveragePool", {"kernel_shape": [kernel] * 2, "ceil_mode": 1}),
            ("LpPool", {"kernel_shape": [kernel] * 2, "auto_pad": "SAME_LOWER", "p": 2}),
        )
    },
    "an unpooled shape": Windowed(
        "MaxUnpool", (7, 7), (2, 2), {"kernel_shape": [2, 2], "strides": [2, 2]},
        whole=(2, 4, 7, 7),
    ),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_windows_lie_where_onnxruntime_has_them(name, tmp_path):
    assert examine(CASES[name], tmp_path).wrong == ()


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(16))
def test_a_drawn_window_is_computed_as_onnxruntime_does(seed, tmp_path):
    case = draw(np.random.default_rng(seed))

    assert examine(case, tmp_path).wrong == (), case

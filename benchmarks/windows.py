"""Random convolutions and pools: forward as stock onnxruntime runs the file, and gradients.

    python benchmarks/windows.py [--cases 3000] [--first 0] [--processes 2]

Draws nodes (Conv, ConvTranspose, MaxPool, AveragePool, LpPool, MaxUnpool; `auto_pad`, strides,
dilations, kernels smaller and larger than a stride, groups, `output_padding`, `output_shape`,
`ceil_mode`, `count_include_pad`, 1 to 3 axes, known and open sizes). Per node: forward in our
engine, and of the written file in stock onnxruntime, against that of the original file in stock
onnxruntime and against what is written out in float64; gradients of our engine, and those of the
written file in stock onnxruntime, against the latter. Prints everything that differs, what
onnxruntime refuses, and a closing line.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from drawn_nodes import sweep

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests")]


def examine(seed: int) -> tuple[str, list[str], str, str]:
    """The node drawn from `seed`, what is wrong with it, what was left out, and its operator."""
    from windowed import draw
    from windowed_checks import examine as checked

    warnings.simplefilter("ignore")
    case = draw(np.random.default_rng(seed))
    with tempfile.TemporaryDirectory() as folder:
        try:
            verdict = checked(case, Path(folder))
        except Exception as error:  # noqa: BLE001 - whatever happens is a finding
            return str(case), [f"{type(error).__name__}: {error}"], "", case.op
    return str(case), list(verdict.wrong), verdict.excluded, case.op


if __name__ == "__main__":
    sys.exit(sweep(examine, __doc__.splitlines()[0], cases=3000))

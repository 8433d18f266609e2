"""Random Resize and Upsample nodes: forward and both gradients against onnxruntime's exact map.

    python benchmarks/resize.py [--cases 5000] [--first 0] [--processes 2]

Draws nodes (modes, coordinates, roundings, scales and sizes, axes, policies, regions, antialiasing,
opsets 7 to 21, known and unknown sizes, computed scales). Per node: forward in our arena against
onnxruntime; the gradient of our arena, and that of the written file in stock onnxruntime, against
the transpose of the Jacobian, which is exact because Resize is linear. Prints what was left out and
why, everything that is wrong, and a closing line.
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
    """The node drawn from `seed`, its mode, what is wrong with it, and why anything is left out."""
    from resize_checks import examine as checked
    from resizes import draw

    warnings.simplefilter("ignore")
    case = draw(np.random.default_rng(seed))
    with tempfile.TemporaryDirectory() as folder:
        try:
            verdict = checked(case, Path(folder))
        except Exception as error:  # noqa: BLE001 - whatever happens is a finding
            return str(case), [f"{type(error).__name__}: {error}"], "", case.mode
    return str(case), list(verdict.wrong), verdict.excluded, case.mode


if __name__ == "__main__":
    sys.exit(sweep(examine, __doc__.splitlines()[0], cases=5000))

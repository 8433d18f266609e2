"""What lies beside the repository: a zoo of exported models, planning instances of the literature.

No file of it belongs to gradtool. Tests that open one have the marker `shared`, which skips them
where the folder is not there (`conftest.py`).
"""

from __future__ import annotations

from pathlib import Path

import instances

SHARED = Path(__file__).resolve().parents[2] / "shared"
# `small/NAME` holds `model.onnx`, `inputs.npz`, `loss.npy`, `grads.npz` (float64, by PyTorch) and
# `meta.json`; `full/NAME` holds `model.onnx` and `model_dynbatch.onnx`, without weights.
SMALL, FULL = SHARED / "zoo" / "small", SHARED / "zoo" / "full"
REMAT = SHARED / "graphs" / "remat"


def is_there() -> bool:
    """Whether the zoo and the instances lie beside this repository."""
    return SMALL.is_dir() and FULL.is_dir() and REMAT.is_dir()


def instance(name: str):
    """The program of a planning instance of the literature."""
    return instances.read(REMAT / f"{name}.json")

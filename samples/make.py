"""Writes the sample models and their data: `python samples/make.py [--out DIR]`."""

from __future__ import annotations

from pathlib import Path

import cnn
import data
import lstm
import transformer
from making import main, npz

MODELS = {"cnn": cnn.model, "transformer": transformer.model, "lstm": lstm.model}
DATA = {"cnn": data.cnn, "transformer": data.transformer, "lstm": data.lstm}


def files() -> dict[str, bytes]:
    """Every sample file, by its name."""
    models = {f"{name}.onnx": build().SerializeToString() for name, build in MODELS.items()}
    return models | {f"{name}.npz": npz(draw()) for name, draw in DATA.items()}


if __name__ == "__main__":
    main(__doc__, files, Path(__file__).parent)

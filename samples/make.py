"""Writes the sample models and their data: `python samples/make.py [--out DIR]`."""

from __future__ import annotations

import argparse
import io
import zipfile
from pathlib import Path

import cnn
import data
import lstm
import numpy as np
import transformer

HERE = Path(__file__).parent

MODELS = {"cnn": cnn.model, "transformer": transformer.model, "lstm": lstm.model}
DATA = {"cnn": data.cnn, "transformer": data.transformer, "lstm": data.lstm}


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    """What `np.savez` writes, without the time and the platform."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            member.create_system = 3
            content = io.BytesIO()
            np.save(content, np.ascontiguousarray(array), allow_pickle=False)
            archive.writestr(member, content.getvalue())
    return file.getvalue()


def files() -> dict[str, bytes]:
    """Every sample file, by its name."""
    models = {f"{name}.onnx": build().SerializeToString() for name, build in MODELS.items()}
    return models | {f"{name}.npz": npz(draw()) for name, draw in DATA.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE, help="a folder; default: samples/")
    out = parser.parse_args().out

    out.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (out / name).write_bytes(content)
        print(f"{name:18} {len(content) / 1024:7.1f} KiB")


if __name__ == "__main__":
    main()

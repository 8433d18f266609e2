"""A batch for languages that read no `.npz`: `python batch.py BATCH.npz BATCH.safetensors`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

NAMES = {"float32": "F32", "int64": "I64"}


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    header, parts, end = {}, [], 0
    for name, array in np.load(source).items():
        span = [end, end := end + array.nbytes]
        shape = list(array.shape)
        header[name] = {"dtype": NAMES[array.dtype.name], "shape": shape, "data_offsets": span}
        parts.append(array.tobytes())
    text = json.dumps(header).encode()
    target.write_bytes(b"".join((len(text).to_bytes(8, "little"), text, *parts)))


if __name__ == "__main__":
    main()

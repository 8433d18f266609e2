"""Arrays to `.npz` files: whole or not at all, the same bytes for the same arrays.

Strings, which are objects where operators compute with them, are written as text.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from gradtool.io import atomic

EPOCH = (1980, 1, 1, 0, 0, 0)


def save(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write arrays by name, replacing an old file.

    Source: the format of `numpy.savez`; unlike it, members carry no time stamp.
    """

    def fill(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in arrays.items():
                member = zipfile.ZipInfo(f"{name}.npy", date_time=EPOCH)
                with archive.open(member, "w", force_zip64=True) as out:
                    np.lib.format.write_array(out, _plain(array), allow_pickle=False)

    atomic.write([atomic.Output(atomic.target(path, force=True), fill)])


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array without objects."""
    array = np.asanyarray(array)
    if array.dtype.kind != "O":
        return array
    texts = [x.decode("utf-8", "replace") if isinstance(x, bytes) else str(x) for x in array.flat]
    return np.asarray(texts, np.str_).reshape(array.shape)

"""What scripts that make samples have in common: files of the same bytes everywhere."""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np


def npz(arrays: Mapping[str, np.ndarray]) -> bytes:
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


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files, and say how large they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
        print(f"{name:18} {len(content) / 1024:7.1f} KiB")


def main(
    doc: str | None, files: Callable[[], Mapping[str, bytes]], default: Path | str = "."
) -> None:
    """Write files to the folder that `--out` names."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=default, help=f"a folder; default: {default}")
    write(parser.parse_args().out, files())

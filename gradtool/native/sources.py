"""Sources of the library: its name on each system, its C files, and their digest.

Only the standard library is imported: the build reads this file by its path, without gradtool.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

FOLDER = Path(__file__).parent / "lib"
TREE = Path(__file__).parent.parent.parent / "native"  # absent where gradtool is installed
ENDINGS = {"linux": ".so", "macos": ".dylib", "windows": ".dll"}
DIGEST = "digest.txt"  # beside the library: the digest of its sources


def digest(tree: Path) -> str:
    """SHA-256 of every file the library depends on, and of their names."""
    found = hashlib.sha256()
    for path in sorted(
        path for path in tree.rglob("*") if path.suffix in {".c", ".h", ".py"} and path.is_file()
    ):
        content = path.read_bytes()
        found.update(f"{path.relative_to(tree).as_posix()} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()

"""Programs of Node, and the npm packages that some of them need."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gradtool.kit import write

KIT = write.PACKAGE
MODULES = Path(__file__).parents[1] / "samples" / "kit" / "node_modules"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no Node on this machine")
needs_modules = pytest.mark.skipif(
    NODE is None or not (MODULES / "gradtool-kit").exists(),
    reason="no npm packages: (cd samples/kit && npm install --ignore-scripts)",
)


def printed(*command: object, folder: Path) -> str:
    """What a program prints."""
    done = subprocess.run(
        [*map(str, command)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


def node(text: str, folder: Path) -> str:
    """What a module prints that imports `gradtool-kit` as `./kit.mjs`."""
    shutil.copy(KIT / "kit.mjs", folder)
    (folder / "program.mjs").write_text(text)
    return printed(NODE, "program.mjs", folder=folder)

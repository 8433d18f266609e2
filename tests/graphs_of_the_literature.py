"""The planning instances of the literature, where they are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradtool.planning import instances

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "graphs" / "remat"


def read(name):
    """The program of an instance; the test is skipped without it."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        pytest.skip("the planning instances are not here")
    return instances.read(path)

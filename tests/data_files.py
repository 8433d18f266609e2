"""Data files beside models that tests write."""

from pathlib import Path


def data_of(path: Path) -> Path:
    """The data file beside a model, which is named by its content."""
    (found,) = path.parent.glob(f"{path.name}.*.data")
    return found

"""Installation of optional features: the requirements of gradtool's extras, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# As in pyproject.toml, whose extras have names that work in a clone alone.
REQUIREMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "ort": ("onnxruntime>=1.23",), "cuda12": ("cupy-cuda12x>=14",),
    "cuda13": ("cupy-cuda13x>=14",), "image": ("pillow>=10",),
    "audio": ("soundfile>=0.12",), "data": ("pyarrow>=15",),
    "mpi": ("mpi4py>=4", "mpich>=4.3"), "tensorboard": ("tensorboardX>=2.6",),
    "wandb": ("wandb>=0.19",), "mlflow": ("mlflow>=3",),
    "text": ("tokenizers>=0.20", "jinja2>=3.1"),
})  # fmt: skip


def install(extra: str) -> str:
    """The installing command of an extra: `pip install 'onnxruntime>=1.23'`."""
    return " ".join(("pip install", *(f"'{each}'" for each in REQUIREMENTS[extra])))

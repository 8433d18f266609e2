"""The operator families: one file name for a family's rules, composites and kernels."""

from __future__ import annotations

CONTRIB, ML, PREVIEW = "com.microsoft", "ai.onnx.ml", "ai.onnx.preview.training"  # domains

FAMILIES = (
    "elementwise",
    "activation",
    "linear",
    "conv",
    "pool",
    "norm",
    "reduce",
    "shape",
    "index",
    "loss",
    "recurrent",
    "attention",
    "control",
    "sequence",
    "signal",
    "vision",
    "matrix",
    "random",
    "text",
    "ml",
    "training",
    "updates",
    "sparse",
    "quantize",
    "contrib",
)


def split_name(name: str) -> tuple[str, str]:
    """`"com.acme::Gate"` → `("com.acme", "Gate")`; a bare name is of the standard domain."""
    domain, _, op = name.rpartition("::")
    return ("" if domain == "ai.onnx" else domain), op


def full_name(domain: str, op: str) -> str:
    """The inverse of `split_name`."""
    return f"{domain}::{op}" if domain and domain != "ai.onnx" else op

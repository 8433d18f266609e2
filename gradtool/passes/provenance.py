"""What an exporter says of the tensors and nodes that it writes.

PyTorch's exporter by `torch.export` notes of each tensor whether it was a parameter, a buffer or
a constant, its optimizer from what a tensor was folded, and both of nodes their module.

Source: `torch/onnx/_internal/exporter/_core.py` (PyTorch 2.13); onnxscript's constant folding.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from typing import Literal

import onnx_ir as ir

Role = Literal["parameter", "constant"]

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
FOLDED = "pkg.onnxscript.optimizer.folded_from"
SCOPES = "pkg.torch.onnx.name_scopes"
_TEMPORARY = re.compile(r"getitem|(val|getitem)_\d+")


def role(value: ir.Value, written: Collection[str]) -> Role | None:
    """What the exporter took a tensor for; None if it does not say.

    `written` are the names of all values that nodes write: what is folded from those and from the
    exporter's own temporary values alone holds no parameter.
    """
    kind = value.metadata_props.get(KIND)
    if kind is not None:
        return "parameter" if kind == "PARAMETER" else "constant"
    origins = _names(value.metadata_props.get(FOLDED, ""))
    if origins and all(n in written or _TEMPORARY.fullmatch(n) for n in origins):
        return "constant"
    return None


def _names(text: str) -> list[str]:
    try:
        found = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError):
        return []
    return [str(name) for name in found] if isinstance(found, list) else []


def module(node: ir.Node) -> str | None:
    """The module of the exported program that a node belongs to; None if nothing says."""
    scopes = _names(node.metadata_props.get(SCOPES, ""))
    return scopes[-2] if len(scopes) > 1 else None


def operation(node: ir.Node) -> str:
    """The operation of the exported program that a node stems from; empty if nothing says."""
    scopes = _names(node.metadata_props.get(SCOPES, ""))
    return scopes[-1] if scopes else ""

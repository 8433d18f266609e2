"""What an exporter says of the tensors and nodes that it writes.

PyTorch's exporter by `torch.export` notes of each tensor whether it was a parameter, a buffer or
a constant, its optimizer from what a tensor was folded, and both of nodes their module.

Source: `torch/onnx/_internal/exporter/_core.py` (PyTorch 2.13); onnxscript's constant folding.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

import onnx_ir as ir

from gradtool.graph.metadata import CLASSES, LONGEST, SCOPES, TRACE
from gradtool.passes.aten import is_of_operation

Role = Literal["parameter", "constant"]

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
FOLDED = "pkg.onnxscript.optimizer.folded_from"
_ITEM = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_LIST = re.compile(rf"\[\s*(?:{_ITEM}\s*(?:,\s*{_ITEM}\s*)*(?:,\s*)?)?\]", re.DOTALL)
_FRAME = re.compile(r'File "([^"\n]*)", line (\d{1,9})\b')
_SLASH = re.compile(r"[/\\]")
_LIBRARY = re.compile(r"(?:^|[/\\])torch[/\\]")


def role(value: ir.Value, written: Collection[str]) -> Role | None:
    """What the exporter took a tensor for; None if it does not say.

    `written` are the names of all values that nodes write: what is folded from those and from what
    operations made before alone holds no parameter.
    """
    kind = value.metadata_props.get(KIND)
    if kind is not None:
        return "parameter" if kind == "PARAMETER" else "constant"
    names = origins(value)
    if names and all(n in written or is_of_operation(n) for n in names):
        return "constant"
    return None


def origins(value: ir.Value) -> list[str]:
    """The names of what the exporter's optimizer folded into a tensor."""
    return _names(value.metadata_props.get(FOLDED, ""))


def _names(text: str) -> list[str]:
    """The strings in a list as Python prints it; none if the text is something else."""
    if len(text) > LONGEST or not _LIST.fullmatch(text):
        return []
    return [item[1:-1] for item in re.findall(_ITEM, text, re.DOTALL)]


def module(node: ir.Node) -> str | None:
    """The module of the exported program that a node belongs to; None if nothing says."""
    scopes = _names(node.metadata_props.get(SCOPES, ""))
    return scopes[-2] if len(scopes) > 1 else None


def operation(node: ir.Node) -> str:
    """The operation of the exported program that a node stems from; empty if nothing says."""
    scopes = _names(node.metadata_props.get(SCOPES, ""))
    return scopes[-1] if scopes else ""


def place(node: ir.Node) -> str:
    """Module and line that a node comes from, `encoder.layers.3.linear1 (model.py:41)`.

    The module that is the whole model goes by its class.  Empty if nothing says.
    """
    name = module(node) or _class(node)
    line = _line(node.metadata_props.get(TRACE, ""))
    return f"{name} ({line})" if name and line else name


def _class(node: ir.Node) -> str:
    """The class of the module that a node belongs to, without its package."""
    found = _names(node.metadata_props.get(CLASSES, ""))
    return found[-2].rpartition(".")[2] if len(found) > 1 else ""


def _line(trace: str) -> str:
    """The innermost line of a stack trace that is none of PyTorch itself."""
    frames = _FRAME.findall(trace[-LONGEST:])
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])] or frames
    if not own:
        return ""
    path, line = own[-1]
    return f"{_SLASH.split(path)[-1]}:{line}"

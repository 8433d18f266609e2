"""Provenance of tensors and nodes, as noted by their exporter.

PyTorch's exporter by `torch.export` notes of each tensor whether it was a parameter, a buffer or a
constant, its optimizer the sources of a folded tensor, and both of nodes their module.

Source: `torch/onnx/_internal/exporter/_core.py` (PyTorch 2.13); onnxscript's constant folding.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

import onnx_ir as ir

from gradtool.graph.metadata import CLASSES, LONGEST, SCOPES, TRACE
from gradtool.io.lift_constants import TRACED

Role = Literal["parameter", "constant"]

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
FOLDED = "pkg.onnxscript.optimizer.folded_from"
_ITEM = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_LIST = re.compile(rf"\[\s*(?:{_ITEM}\s*(?:,\s*{_ITEM}\s*)*(?:,\s*)?)?\]", re.DOTALL)
_FRAME = re.compile(r'File "([^"\n]*)", line (\d{1,9})\b')
_SLASH = re.compile(r"[/\\]")
_LIBRARY = re.compile(r"(?:^|[/\\])torch[/\\]")
# Operations of `torch.ops.aten` (PyTorch 2.13) that make, bend or lay out tensors: exporters name
# results by the rule of `torch.fx`, the operation, perhaps `_default`, and a number.
_MADE = """arange empty empty_like empty_strided eye full full_like linspace logspace meshgrid
new_empty new_full new_ones new_zeros one_hot ones ones_like randn scalar_tensor
tril_indices triu_indices zeros zeros_like"""
_BENT = """abs acos add all amax amin any argmax argmin argsort asin atan atan2 bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bucketize ceil clamp
clamp_max clamp_min clip cos cosh cummax cummin cumprod cumsum div eq erf exp exp2 expm1 fill floor
floor_divide fmod ge gt isinf isnan le linear log log10 log1p log2 logical_and logical_not
logical_or logical_xor lt masked_fill masked_scatter maximum minimum mod mul ne neg pow
prod reciprocal remainder round rsqrt rsub searchsorted sigmoid sign sin sinh softmax sort sqrt
square sub sum tan tanh topk tril triu trunc where"""
_LAID_OUT = """_to_copy _unsafe_view alias as_strided broadcast_to cat chunk clone
constant_pad_nd contiguous copy detach diagonal expand flatten flip gather getitem index
index_put index_select lift_fresh_copy narrow outer pad permute repeat repeat_interleave reshape
roll scatter select select_scatter slice slice_scatter split squeeze stack t tile to transpose
type_as unbind unflatten unfold unsqueeze view"""
_OPERATIONS = "|".join((*_MADE.split(), *_BENT.split(), *_LAID_OUT.split()))
_NAME = re.compile(rf"(?:{_OPERATIONS})(?:_tensor|_scalar|_default)*(?:_\d+)?|val_\d+")


def role(value: ir.Value, written: Collection[str]) -> Role | None:
    """The role of a tensor to the exporter; None if it does not say.

    `written` are the names of all values that nodes write: a tensor folded from those and from
    earlier results of operations alone holds no parameter.
    """
    kind = value.metadata_props.get(KIND)
    if kind is not None:
        return "parameter" if kind == "PARAMETER" else "constant"
    if TRACED.fullmatch(value.name or ""):
        return "constant"
    names = origins(value)
    if names and all(n in written or _NAME.fullmatch(n) is not None for n in names):
        return "constant"
    return None


def origins(value: ir.Value) -> list[str]:
    """The names of the values folded into a tensor by the exporter's optimizer."""
    return _names(value.metadata_props.get(FOLDED, ""))


def parameters_of(value: ir.Value) -> list[str]:
    """Those of the origins of a tensor that are no results of operations."""
    return [name for name in origins(value) if _NAME.fullmatch(name) is None]


def _names(text: str) -> list[str]:
    """The strings in a list as Python prints it; none if the text is something else."""
    if len(text) > LONGEST or not _LIST.fullmatch(text):
        return []
    return [item[1:-1] for item in re.findall(_ITEM, text, re.DOTALL)]


def module(node: ir.Node) -> str | None:
    """The module of a node in the exported program; None if unknown."""
    scopes = _names(node.metadata_props.get(SCOPES, ""))
    return scopes[-2] if len(scopes) > 1 else None


def operation(node: ir.Node) -> str:
    """The operation of a node in the exported program; empty if unknown."""
    scopes = _names(node.metadata_props.get(SCOPES, ""))
    return scopes[-1] if scopes else ""


def place(node: ir.Node) -> str:
    """Module and line of a node, `encoder.layers.3.linear1 (model.py:41)`.

    The module of the whole model goes by its class.  Empty if nothing says.
    """
    name = module(node) or _class(node)
    line = _line(node.metadata_props.get(TRACE, ""))
    return f"{name} ({line})" if name and line else name


def _class(node: ir.Node) -> str:
    """The class of a node's module, without its package."""
    found = _names(node.metadata_props.get(CLASSES, ""))
    return found[-2].rpartition(".")[2] if len(found) > 1 else ""


def _line(trace: str) -> str:
    """The innermost line of a stack trace outside of PyTorch itself."""
    frames = _FRAME.findall(trace[-LONGEST:])
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])] or frames
    if not own:
        return ""
    path, line = own[-1]
    return f"{_SLASH.split(path)[-1]}:{line}"

"""Stop-gradients named or traced by PyTorch's exporter in the metadata of nodes.

A node notes its operation of the exported program, with its operands:

    %add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%mul, %detach), …

A detach is an Identity, which the exporter's optimizer removes: the operand is still called after
it.  The row `padding_idx` of an embedding gets no gradient; `scale_grad_by_freq` is not honoured.

Source: `torch/onnx/_internal/exporter/_core.py` (PyTorch 2.5 to 2.13), `torch.fx.Node.format_node`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.metadata import FX_NODE, LONGEST, PADDING, TRACE
from gradtool.graph.predicates import may_be_float
from gradtool.text.words import some

_NODE = re.compile(
    r"%(\w+)\b[^%\n]*?target=(?:torch\.ops\.)?([\w.]+)\]\(args = \((.*)\), kwargs = "
)
_DETACH = re.compile(r"detach_?(?:_default)?(?:_\d+)?")
_PADDED = re.compile(r"%\w+, %\w+, (-?\d+)")
_OPERAND = re.compile(r"%(\w+)")
_PARAMETER = re.compile(r"(?:p|b|c|lifted)_")
_FUNCTION = re.compile(
    r"\b(\w{1,200}\.apply)\([^\n]*\n\s*File [^\n]*, in forward|, in (forward)\n[^\n]*\bctx\b"
)
_WRAPPED = 'File "<eval_with_key>'
_RENORM = "aten.embedding_renorm.default"


@dataclass(frozen=True)
class _Operation:
    """An operation of the exported program: its name, its target, and its operands' names."""

    name: str
    target: str
    arguments: str
    nodes: list[ir.Node] = field(default_factory=list)

    @property
    def operands(self) -> list[str]:
        return _OPERAND.findall(self.arguments)


class Stopped(NamedTuple):
    """The values that stop gradients, and warnings about them."""

    values: frozenset[ir.Value] = frozenset()
    said: tuple[str, ...] = ()


def stop_gradients(op: Builder) -> Stopped:
    """Find the detached values of a graph and mark its embeddings with a row of padding.

    An operand whose detach was removed is read through an Identity of its own from then on.
    """
    operations = _operations(op.graph)
    made = {v.name: v for node in op.graph for v in node.outputs}
    unclear: list[str] = []
    stops: dict[ir.Value, ir.Value] = {}
    values: list[ir.Value] = []
    for each in operations:
        if each.target in ("aten.detach.default", "aten.detach_.default"):
            values += [v for node in each.nodes for v in node.outputs if not _is_renormed(v)]
        elif each.target != _RENORM and any(map(_DETACH.fullmatch, each.operands)):
            found = _detached(each, made)
            if found is None:
                unclear.append(each.name)
            values += [_stopped(op, node, slot, stops) for node, slot in found or ()]
    padded = [said for each in operations if (said := _padded(each))]
    behind = {after: value for value, after in stops.items()}
    names = [behind.get(v, v).name or "" for v in dict.fromkeys(values)]
    lines: list[str] = []
    if names:
        lines.append(f"detached in PyTorch, so that no gradient flows through: {some(names)}")
    if padded:
        lines.append(f"padding, which gets no gradient: {some(padded)}")
    if unclear:
        lines.append(
            f"which operands of {some(unclear)} are detached cannot be told: export with "
            "optimize=False"
        )
    return Stopped(frozenset(values), (*lines, *_traced(op.graph)))


def _operations(graph: ir.Graph) -> list[_Operation]:
    """The operations of the exported program, in the order of their nodes."""
    found: dict[str, _Operation] = {}
    for node in graph:
        text = node.metadata_props.get(FX_NODE, "")
        if text not in found:
            match = _NODE.match(text) if text and len(text) <= LONGEST else None
            if match is None:
                continue
            found[text] = _Operation(match[1], match[2], match[3])
        found[text].nodes.append(node)
    return list(found.values())


def _is_renormed(value: ir.Value) -> bool:
    """Whether a detach only serves an embedding to shorten rows in place."""
    return any(_RENORM in use.node.metadata_props.get(FX_NODE, "") for use in value.uses())


# -------------------------------------------------------------------- detached operands

Slot = tuple[ir.Node, int]


def _detached(operation: _Operation, made: Mapping[str | None, ir.Value]) -> list[Slot] | None:
    """The reads of an operation that its detached operands stand for; None if unclear.

    Operands stand for values of their name, the others for the other reads.  A detach that is a
    node still is one for itself.
    """
    operands = operation.operands
    if all(name in made for name in operands if _DETACH.fullmatch(name)):
        return []
    first = [(operation.nodes[0], i) for i, v in enumerate(operation.nodes[0].inputs) if v]
    if len(operation.nodes) == 1 and len(first) == len(operands):
        pairs = list(zip(first, operands, strict=True))
        if all(_DETACH.fullmatch(name) or _is_called(node.inputs[i], name)
               for (node, i), name in pairs):  # fmt: skip
            return [slot for slot, name in pairs if _DETACH.fullmatch(name)]
    return _by_elimination(
        operation, [n for n in operands if n not in made or _DETACH.fullmatch(n)]
    )


def _by_elimination(operation: _Operation, unnamed: Sequence[str]) -> list[Slot] | None:
    """The reads without an operand of their name, if all operands of other names are detached."""
    inner = {v for node in operation.nodes for v in node.outputs}
    slots = [
        (node, i, v) for node in operation.nodes for i, v in enumerate(node.inputs)
        if v is not None and v not in inner and may_be_float(v) and not _is_constant(v)
    ]  # fmt: skip
    names = operation.operands
    rest = [slot for slot in slots if not any(_is_called(slot[2], name) for name in names)]
    unnamed = [n for n in unnamed if not any(_is_called(v, n) for _, _, v in slots)]
    parameters = [n for n in unnamed if _PARAMETER.match(n)]
    if parameters:
        rest = [slot for slot in rest if not slot[2].is_initializer()]
        unnamed = [n for n in unnamed if n not in parameters]
    if not rest or not all(map(_DETACH.fullmatch, unnamed)):
        return None
    return [(node, i) for node, i, _ in rest]


def _is_called(value: ir.Value | None, operand: str) -> bool:
    """Whether a value has the name of an operand: a parameter's has a prefix and no dots."""
    name = (value.name or "").replace(".", "_") if value is not None else ""
    return operand in (name, f"p_{name}", f"b_{name}", f"c_{name}")


def _is_constant(value: ir.Value) -> bool:
    """Whether a value is a plain number or computed by nobody."""
    tensor = ir.convenience.get_const_tensor(value)
    return tensor is not None and (not value.is_initializer() or tensor.size <= 1)


def _stopped(op: Builder, node: ir.Node, slot: int, stops: dict[ir.Value, ir.Value]) -> ir.Value:
    """Let a node read an Identity of an operand, one for each value."""
    value = node.inputs[slot]
    assert value is not None  # noqa: S101 - an operand that is read
    if value not in stops:
        with op.at(node, stage="forward", source="", prefix=f"{value.name}/detach"):
            stops[value] = op.Identity(value)
    node.replace_input_with(slot, stops[value])
    return stops[value]


# ------------------------------------------------------------------------------- padding


def _padded(operation: _Operation) -> str:
    """The phrase about an embedding's row of padding, noted at its nodes; else nothing."""
    if operation.target != "aten.embedding.default":
        return ""
    match = _PADDED.match(operation.arguments)
    gathers = [node for node in operation.nodes if node.op_type == "Gather"]
    if match is None or int(match[1]) < 0 or not gathers:
        return ""
    for node in gathers:
        node.metadata_props[PADDING] = match[1]
    table = gathers[0].inputs[0]
    return f"row {match[1]} of {table.name if table is not None else ''}"


# -------------------------------------------------------------------------------- traces


def _traced(graph: ir.Graph) -> list[str]:
    """Warnings from traces of the code about a backward other than that of the nodes."""
    functions: dict[str, list[ir.Node]] = {}
    wrapped: dict[ir.Node, None] = {}
    for node in graph:
        trace = node.metadata_props.get(TRACE, "")[-LONGEST:]
        if trace.startswith(_WRAPPED):
            wrapped[node] = None
        elif (match := _FUNCTION.search(trace)) is not None:
            functions.setdefault(match[1] or match[2], []).append(node)
    said = []
    results = [v.name or "" for n in wrapped for v in n.outputs if _leaves(v, wrapped)]
    if results:
        said.append(
            "computed in a region of its own, as no_grad and autocast make them: "
            f"{some(results)}; if it is no_grad: --no-grad {results[0]}"
        )
    if functions:
        said.append(
            f"{some(functions)} is of an autograd.Function: its backward is not in the file, "
            "gradients are those of its forward; a value without one is named with --no-grad"
        )
    return said


def _leaves(value: ir.Value, nodes: Collection[ir.Node]) -> bool:
    """Whether a float is read outside of some nodes."""
    used = any(use.node not in nodes for use in value.uses()) or value.is_graph_output()
    return used and may_be_float(value)

"""Weights with room for an adapter, and the products that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.composites import DOMAIN
from gradtool.graph.families import CONTRIB
from gradtool.graph.predicates import is_float
from gradtool.graph.typed import as_tensor, ints
from gradtool.passes.fuse_low_bits import CODES, WHOLE
from gradtool.passes.integer_products import SCALED
from gradtool.passes.parameters import Role, Roles
from gradtool.passes.selection import nothing_meant
from gradtool.text.words import some, suggest

MATRIX = 2  # axes
TURNED = {(DOMAIN, "QuantizedMatMul"): "turned", (CONTRIB, "MatMulBnb4"): "transB",
          (CONTRIB, "MatMulNBits"): ""}  # fmt: skip
"""Products with a matrix of few bits, input 1, and the attribute that says it is transposed."""


@dataclass(frozen=True)
class Use:
    """A product that reads a weight in a slot, `flipped` if both its axes are exchanged by then.

    One of integers is the node that scales it, and has its float operand `x` and its name apart.
    """

    node: ir.Node
    slot: int
    flipped: bool
    x: ir.Value | None = None
    name: str = ""


def targets(model: ir.Model, patterns: Sequence[str], roles: Roles) -> dict[ir.Value, list[Use]]:
    """The weights for adapters, and their uses."""
    able: dict[str, tuple[ir.Value, list[Use]]] = {}
    closed: dict[str, tuple[ir.Value, list[Use]]] = {}
    unable: dict[str, str] = {}
    for value in model.graph.initializers.values():
        role = roles.get(value, Role.PARAMETER)
        coded = not is_float(value) and isinstance(uses_of(value, coded=True), list)
        name = stored_as(value)[0]
        uses = uses_of(value, coded=coded) if role.is_named or coded else f"is {role.said(value)}"
        if value.meta.get(WHOLE) and not value.meta.get(SCALED):
            uses = "is multiplied in whole numbers"
        if isinstance(uses, str):
            unable[name] = uses
        else:
            (able if role.is_open or coded else closed)[name] = value, uses
    chosen: dict[str, None] = {}
    named = able | closed
    nodes = {use.name or _called(use.node): name for name in able for use in able[name][1]}
    for pattern in patterns or ("*",):
        exact = pattern in named or pattern in unable
        found = [pattern] if pattern in named else []
        found = found or [n for n in able if not exact and fnmatchcase(n, pattern)]
        found = found or [nodes[n] for n in nodes if not exact and fnmatchcase(n, pattern)]
        if not found:
            raise UsageError(_none(pattern if patterns else "", able, closed, unable, roles))
        chosen |= dict.fromkeys(found)
    return {named[name][0]: named[name][1] for name in named if name in chosen}


def _none(
    pattern: str, able: Mapping[str, Any], closed: Mapping[str, tuple[ir.Value, Any]],
    unable: Mapping[str, str], roles: Roles,
) -> str:  # fmt: skip
    """Why a pattern chooses no weight; the empty one stands for all."""
    flag = f"--lora-target {pattern}" if pattern else "--lora"
    if pattern in unable:
        return f"{flag}: no adapter beside it: it {unable[pattern]}"
    matched = [value for name, (value, _) in closed.items() if fnmatchcase(name, pattern or "*")]
    if matched:
        return f"{flag}: {nothing_meant(matched, roles)}"
    hint = suggest(pattern, able) or f"; there are {some(able, 5) or 'none'}"
    held = [
        f"{n} ({why.partition(':')[0]})"
        for n, why in unable.items()
        if pattern and fnmatchcase(n, pattern)
    ]
    if held:
        return f"{flag}: no adapter beside any of what it matches: {some(held, 5)}"
    return f"{flag}: no such weight of a MatMul, Gemm or Conv{hint}"


def uses_of(weight: ir.Value, *, coded: bool | None = None) -> list[Use] | str:
    """The products that read a weight, all fit for a branch; else the reason why not.

    Of one of few bits (`coded`; None: of integers) others may read the codes, which stay; a
    DequantizeLinear makes numbers of them.
    """
    if weight.meta.get(SCALED):
        there = [each for each in weight.meta[SCALED] if each.node.graph is not None]
        return [Use(each.node, 1, False, each.x, each.name) for each in there] or "is not read"
    return _followed(weight, coded=not is_float(weight) if coded is None else coded)


def _followed(weight: ir.Value, *, coded: bool) -> list[Use] | str:
    """The products that read a weight, perhaps laid out or dequantised first."""
    found: list[Use] = []
    waiting = [(weight, False, not coded)]
    rank = len(weight.shape or ())
    while waiting:
        value, flipped, real = waiting.pop(0)
        if value.is_graph_output() and not coded:
            return "is an output"
        for use in value.uses():
            node, slot = use.node, use.idx
            if node.op_type == "Identity" or (node.op_type == "Reshape" and not real):
                waiting.append((node.outputs[0], flipped, real))
            elif node.op_type == "DequantizeLinear" and not real and slot == 0:
                waiting.append((node.outputs[0], flipped, True))
            elif node.op_type == "Transpose" and rank == MATRIX and real:
                perm = node.attributes.get_ints("perm", (1, 0))
                waiting.append((node.outputs[0], flipped != (tuple(perm) == (1, 0)), real))
            elif _is_product(node, slot, rank) if real else _is_coded(node, slot):
                found.append(Use(node, slot, flipped != flips(node, slot)))
            elif not coded:
                return f"is read by {node.op_type} {node.name or ''}".rstrip()
    nodes = [use.node for use in found]
    if len(set(nodes)) < len(nodes):
        return "is multiplied by itself"
    return found or "is not read"


def _is_product(node: ir.Node, slot: int, rank: int) -> bool:
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type in ("MatMul", "Gemm"):
        return rank == MATRIX and slot in (0, 1)
    return node.op_type == "Conv" and rank > MATRIX and slot == 1


def _is_coded(node: ir.Node, slot: int) -> bool:
    return (node.domain, node.op_type) in TURNED and slot == 1


def flips(node: ir.Node, slot: int) -> bool:
    """Whether a product exchanges the axes of its operand."""
    if _is_coded(node, slot):
        turned = bool(node.attributes.get_int(TURNED[node.domain, node.op_type], 1))
        return turned != stored_as(node.inputs[1])[1]
    return node.op_type == "Gemm" and bool(node.attributes.get_int(("transA", "transB")[slot], 0))


def stored_as(weight: ir.Value | None) -> tuple[str, bool]:
    """The name of a weight in the file, and whether codes packed anew lie as [in, out] there."""
    assert weight is not None  # noqa: S101 - it is read
    found: tuple[str, bool] = weight.meta.get(CODES, (weight.name or "", False))
    return found


def _called(node: ir.Node) -> str:
    """The name that a product has in its file."""
    return (node.name or "").removesuffix("/QuantizedMatMul")


def kind_of(weight: ir.Value, uses: Sequence[Use]) -> tuple[ir.DataType, tuple[int, ...]]:
    """Type and sizes of the numbers of a weight; of few bits they are its scale's and `[N, K]`."""
    if weight.meta.get(SCALED):
        return uses[0].node.outputs[0].dtype or ir.DataType.FLOAT, weight.meta[SCALED][0].sizes
    node, scale = uses[0].node, None
    coded = _is_coded(node, uses[0].slot)
    if coded:
        scale = node.inputs[2]
    elif not is_float(weight):
        readers = (use.node for use in weight.uses())
        scale = next(n.inputs[1] for n in readers if n.op_type == "DequantizeLinear")
    dtype = weight.dtype if scale is None else scale.dtype
    assert weight.shape is not None and dtype is not None  # noqa: PT018, S101 - it has both
    if not coded:
        return dtype, tuple(weight.shape.numpy())
    codes, given = as_tensor(node.inputs[1]), node.attributes
    rows = given.get_int("N", 0) or ints(codes.shape)[0]
    columns = given.get_int("K", 0) or given.get_int("size", 0)
    return dtype, (columns, rows) if stored_as(weight)[1] else (rows, columns)

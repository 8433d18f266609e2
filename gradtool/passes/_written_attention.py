"""Pattern matching of attention written out, by its last node."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from gradtool.graph.composites import DOMAIN
from gradtool.graph.predicates import is_float
from gradtool.graph.typed import Dim
from gradtool.passes._attention_operands import Operands, broadcasts, dims, readers


@dataclass(frozen=True)
class Written:
    """Attention as it is written out.

    Queries are [B, H, S, D] or [H, S, D], keys alike, or `turned` to [B, H, D, T].  Masks are in
    the order in which the scores meet them, with `inverted` ones hiding where they are true.  With
    `lead` the masks see scores [B, H, S, T], and all else has batch and heads on one axis.  With
    `heads`, of queries and of keys, operands are [B, S, H · D].  A row that sees nothing is NaN,
    zero where that is `safe`.
    """

    q: ir.Value
    k: ir.Value
    v: ir.Value
    masks: tuple[ir.Value, ...] = ()
    inverted: tuple[bool, ...] = ()
    scale: float = 1.0
    fill: float | None = None
    safe: bool = False
    causal: bool = False
    turned: bool = True
    lead: tuple[Dim, ...] = ()
    heads: tuple[int, ...] = ()

    @property
    def scores(self) -> list[Dim]:
        """The sizes of the scores."""
        if self.heads:
            return [dims(self.q)[0], self.heads[0], dims(self.q)[1], dims(self.k)[1]]
        return [*dims(self.q)[:-1], dims(self.k)[-1 if self.turned else -2]]

    @property
    def fits(self) -> bool:
        """Whether sizes and types are known to be of one attention."""
        floats = [m for m in self.masks if m.dtype != ir.DataType.BOOL]
        one = {x.dtype for x in (self.q, self.k, self.v, *floats)}
        agree = self._agree_flat() if self.heads else self._agree()
        return agree and len(one) == 1 and is_float(self.q)

    def _agree_flat(self) -> bool:
        q, k, v = (dims(x) for x in (self.q, self.k, self.v))
        (*_, width), (*_, narrow), (*_, last) = q, k, v
        if not all(isinstance(size, int) for size in (width, narrow, last)):
            return False
        heads, groups = self.heads
        even = width % heads == 0 and last % groups == 0 and width * groups == narrow * heads
        return even and _divides(heads, groups) and q[0] == k[0] and k[:2] == v[:2]

    def _agree(self) -> bool:
        q, k, v = (dims(x) for x in (self.q, self.k, self.v))
        if not (len(q) == len(k) == len(v) and len(q) in (3, 4)):
            return False
        k = [*k[:-2], k[-1], k[-2]] if self.turned else k
        heads = self.turned or q[-3] == k[-3] or _divides(q[-3], k[-3])
        lead = q[:-2] == k[:-2] if self.turned else q[:-3] == k[:-3]
        return lead and heads and k[:-2] == v[:-2] and q[-1] == k[-1] and k[-2] == v[-2]


def _divides(heads: Dim, groups: Dim) -> bool:
    if not isinstance(heads, int) or not isinstance(groups, int):
        return False
    return groups > 0 and heads % groups == 0


@dataclass(frozen=True)
class Look:
    """Finds attention by its last node."""

    operands: Operands

    def at(self, node: ir.Node) -> Written | None:
        """The attention ending in a node, if there is one."""
        if (node.domain, node.op_type) in (("", "Attention"), (DOMAIN, "ScaledAttention")):
            return standard(node)
        if node.op_type != "MatMul" or node.domain not in ("", "ai.onnx"):
            return None
        p, v = node.inputs
        softmax, safe = self._softmax(p, node)
        found = None if softmax is None else self._scores(softmax.inputs[0], softmax)
        if found is None or softmax is None or v is None:
            return None
        whole = found.scores == dims(softmax.outputs[0])
        return replace(found, v=v, safe=safe) if whole else None

    def _softmax(self, p: ir.Value | None, reader: ir.Node) -> tuple[ir.Node | None, bool]:
        """The softmax read by `reader` alone, and whether its rows of NaN are made zeros."""
        look = self.operands
        if look.only_reader(p) is not reader:
            return None, False
        node = look.maker(p, "Softmax", "Identity", "Cast", "Dropout", "Where")
        if node is None or node.op_type == "Where":
            return (None, False) if node is None else (self._made_safe(node), True)
        if node.op_type == "Softmax":
            rank = len(dims(node.outputs[0]))
            last = rank > 0 and node.attributes.get_int("axis", -1) % rank == rank - 1
            return (node if last else None), False
        return self._softmax(node.inputs[0], node) if self._passes_on(node) else (None, False)

    def _made_safe(self, choice: ir.Node) -> ir.Node | None:
        """The softmax p of `Where(IsNaN(p), 0, p)`."""
        look = self.operands
        nan, zero, p = choice.inputs
        asked, softmax = look.maker(nan, "IsNaN"), look.maker(p, "Softmax")
        if asked is None or softmax is None or p is None or asked.inputs[0] is not p:
            return None
        rank = len(dims(p))
        last = rank > 0 and softmax.attributes.get_int("axis", -1) % rank == rank - 1
        alone = set(readers(p)) == {asked, choice} and not p.is_graph_output()
        alone = alone and look.only_reader(nan) is choice
        return softmax if alone and last and look.number(zero) == 0 else None

    def _passes_on(self, node: ir.Node) -> bool:
        """Whether a node is an identity: no Cast to another type, no Dropout that may drop."""
        if node.op_type == "Cast":
            return node.inputs[0] is not None and node.inputs[0].dtype == node.outputs[0].dtype
        shown = len(node.outputs) > 1 and bool(readers(node.outputs[1]))
        training = node.inputs[2] if len(node.inputs) > 2 else None
        return not shown and (training is None or self.operands.number(training) == 0)

    def _scores(self, s: ir.Value | None, reader: ir.Node) -> Written | None:
        """Scores read by `reader` alone, from the product of Q and Kᵀ on."""
        look = self.operands
        kinds = ("MatMul", "Add", "Where", "Mul", "Div", "Identity", "Cast", "Reshape")
        node = look.maker(s, *kinds)
        if s is None or node is None or look.only_reader(s) is not reader:
            return None
        match node.op_type:
            case "MatMul":
                q, k = node.inputs
                return None if q is None or k is None else Written(q, k, k)
            case "Identity" | "Cast":
                return self._scores(node.inputs[0], node) if self._passes_on(node) else None
            case "Reshape":
                return self._reshaped(node)
            case "Mul" | "Div":
                scaled = look.factor(node)
                found = None if scaled is None else self._scores(scaled[0], node)
                if found is None or scaled is None or found.masks:
                    return None
                return replace(found, scale=found.scale * scaled[1])
            case "Add":
                a, b = node.inputs
                return self._added(a, b, node) or self._added(b, a, node)
            case _:
                return self._chosen(node)

    def _reshaped(self, node: ir.Node) -> Written | None:
        """Scores [B · H, S, T] as [B, H, S, T], for masks, or back again."""
        before = None if node.inputs[0] is None else dims(node.inputs[0])
        after = dims(node.outputs[0])
        found = self._scores(node.inputs[0], node)
        if found is None or before is None or before[-2:] != after[-2:]:
            return None
        if found.lead:
            return found if after == found.scores else None
        split = len(before) == 3 and len(after) == 4 and not found.masks
        return replace(found, lead=tuple(after[:2])) if split else None

    def _added(self, s: ir.Value | None, mask: ir.Value | None, node: ir.Node) -> Written | None:
        """`s + mask`."""
        if s is None or mask is None or not _masks(mask, s, node):
            return None
        found = self._scores(s, node)
        return None if found is None or _is_joined(found, node) else _behind(found, mask)

    def _chosen(self, node: ir.Node) -> Written | None:
        """Scores masked by `Where`: `Where(mask, s, fill)` or `Where(mask, fill, s)`."""
        mask, a, b = node.inputs
        fill = self.operands.number(b)
        s, inverted = (a, False) if fill is not None else (b, True)
        fill = self.operands.number(a) if fill is None else fill
        if fill is None or math.isnan(fill) or fill == math.inf or float(np.float32(fill)) != fill:
            return None
        if s is None or mask is None or not _masks(mask, s, node):
            return None
        found = self._scores(s, node)
        if found is None or found.fill not in (None, fill) or _is_joined(found, node):
            return None
        return replace(_behind(found, mask, inverted=inverted), fill=fill)


def _masks(mask: ir.Value, s: ir.Value, node: ir.Node) -> bool:
    """Whether a node leaves the sizes of scores as they are, and broadcasts the mask."""
    sizes = dims(node.outputs[0])
    return len(sizes) > 0 and dims(s) == sizes and broadcasts(mask, sizes)


def _is_joined(found: Written, node: ir.Node) -> bool:
    """Whether batch and heads, separate before, are on one axis again."""
    return bool(found.lead) and len(dims(node.outputs[0])) == 3


def _behind(found: Written, mask: ir.Value, *, inverted: bool = False) -> Written:
    masks, flags = (*found.masks, mask), (*found.inverted, inverted)
    return replace(found, masks=masks, inverted=flags)


def standard(node: ir.Node) -> Written | None:
    """Attention without a past, lengths, a soft cap or a window, with Y as its only read output."""
    q, k, v, mask, *rest = (*node.inputs, None, None)[: max(4, len(node.inputs))]
    given = node.attributes
    odd = any(x is not None for x in rest) or any(
        x.uses() or x.is_graph_output() for x in node.outputs[1:]
    )
    windows = ("left_window_size", "right_window_size")
    odd = odd or given.get_float("softcap", 0.0) != 0 or "softmax_precision" in given
    odd = odd or any(given.get_int(name, -1) != -1 for name in windows)
    if odd or q is None or k is None or v is None or len(dims(q)) not in (3, 4):
        return None
    heads = tuple(given.get_int(f"{name}_num_heads", 0) for name in ("q", "kv"))
    heads = heads if len(dims(q)) == 3 else ()
    if not all(heads) or not len(dims(q)) == len(dims(k)) == len(dims(v)):
        return None
    scale = _scale(node, dims(q)[-1], heads)
    if not scale:
        return None
    causal = bool(given.get_int("is_causal", 0))
    found = Written(q, k, v, scale=scale, safe=True, causal=causal, turned=False, heads=heads)
    if mask is None:
        return found
    return _behind(found, mask) if broadcasts(mask, found.scores) else None


def _scale(node: ir.Node, size: Dim, heads: tuple[int, ...]) -> float | None:
    """The scale of the node, else one by the root of the size of a head, if known."""
    if "scale" in node.attributes:
        return node.attributes.get_float("scale", 0.0)
    if not isinstance(size, int):
        return None
    return 1 / math.sqrt(size // heads[0] if heads else size)

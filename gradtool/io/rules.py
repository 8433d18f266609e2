"""Rules of operators left unchecked by schemas and shape inference.

Each keeps a kernel from dividing by zero or from reading outside an array. A rule looks at
attributes, at known sizes, and at constants; unknown ones are not judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial

import onnx_ir as ir

from gradtool.errors import ModelError
from gradtool.graph import walk
from gradtool.graph.error_context import blamed
from gradtool.graph.injection import by_need
from gradtool.graph.limits import Limits
from gradtool.graph.names import label
from gradtool.graph.predicates import is_integer
from gradtool.io import choices, lengths, static_operands, window_rules
from gradtool.operators.recurrence import GATES
from gradtool.shapes import limits as shape_limits


def check(
    model: ir.Model, limits: Limits | None = None, nodes: Iterable[ir.Node] | None = None
) -> None:
    """Check every node of the model, or some `nodes`. Shapes must have been inferred.

    Without `limits` constants may be as large as they are: sizes are those that somebody gave.

    Raises:
        ModelError: naming the node and the rule.
    """
    for node in walk.nodes(model.graph) if nodes is None else nodes:
        if node.domain:
            continue
        rule = RULES.get(node.op_type)
        broken = lengths.broken(node) or choices.broken(node)
        if broken is None and rule is not None:
            with blamed(partial(label, node), "its rule"):
                broken = rule(node)
        if broken is None and limits is not None:
            broken = _too_large(node, limits)
        if broken is not None:
            raise ModelError(f"{label(node)}: {broken}")


def judges(node: ir.Node, moving: Container[ir.Value]) -> bool:
    """Whether other sizes, of the values that are `moving`, may break a rule of a node."""
    rule = RULES.get(node.op_type)
    if node.domain or (rule is None and node.op_type not in lengths.RULES):
        return False
    is_of_rank = rule in (_permutation, _axes, _not_scalar)
    asked = node.inputs[1:] if is_of_rank else (*node.inputs, *node.outputs)
    return any(value in moving for value in asked)


def _too_large(node: ir.Node, limits: Limits) -> str | None:
    """A few bytes of file must not ask for gigabytes, as results of constants alone."""
    total = sum(_bytes(value) for value in node.outputs)
    if total <= limits.constant_bytes:
        return None
    inputs = [value for value in node.inputs if value is not None]
    is_known = all(ir.convenience.get_const_tensor(value) is not None for value in inputs)
    if not is_known or total <= limits.constant_bytes + sum(map(_bytes, inputs)):
        return None
    return f"makes a constant of {total} bytes; the limit is {limits.constant_bytes}"


def _bytes(value: ir.Value) -> int:
    """Bytes of a value of known type and shape, 0 of another."""
    if value.shape is None or not value.shape.is_static():
        return 0
    return shape_limits.least_bytes(value.shape.numpy(), value.dtype)


def _divisor(node: ir.Node) -> str | None:
    divisor = static_operands.constant(node, 1)
    is_safe = divisor is None or not is_integer(node.outputs[0]) or divisor.all()
    return None if is_safe else "divides integers by zero"


def _permutation(node: ir.Node) -> str | None:
    perm, sizes = static_operands.ints(node, "perm"), static_operands.sizes(node, 0)
    if "perm" not in node.attributes or sizes is None or sorted(perm) == list(range(len(sizes))):
        return None
    return f"perm {perm} is no permutation of {len(sizes)} axes"


def _axes(node: ir.Node) -> str | None:
    constant = static_operands.constant(node, 1)
    axes = static_operands.ints(node, "axes") if constant is None else constant.flatten().tolist()
    sizes = static_operands.sizes(node, 0)
    if sizes is None or not axes:
        return None
    rank = len(sizes) + (len(axes) if node.op_type == "Unsqueeze" else 0)
    if not all(-rank <= axis < rank for axis in axes):
        return f"axes {axes} are out of range for {rank} axes"
    if len({axis % rank for axis in axes}) < len(axes):
        return f"axes {axes} name an axis twice"
    return None


def _scales(node: ir.Node) -> str | None:
    """A vector of several scales has one for each element of an axis."""
    sizes, scales = static_operands.sizes(node, 0), static_operands.sizes(node, 1)
    if sizes is None or scales is None or len(scales) != 1 or scales[0] in (None, 1):
        return None
    axis = node.attributes.get_int("axis", 1)
    if not -len(sizes) <= axis < len(sizes):
        return f"axis {axis} is out of range for {len(sizes)} axes"
    if sizes[axis] not in (None, scales[0]):
        return f"{scales[0]} scales are not one for each of {sizes[axis]} elements on axis {axis}"
    return None


def _out_of_range(indices: Iterable[int], size: int | None) -> str | None:
    if size is None:
        return None
    for index in indices:
        if not -size <= index < size:
            return f"index {index} is out of range for {size} elements"
    return None


def _gather(node: ir.Node) -> str | None:
    indices, sizes = static_operands.constant(node, 1), static_operands.sizes(node, 0)
    if indices is None or not sizes:
        return None
    axis = node.attributes.get_int("axis", 0)
    if not -len(sizes) <= axis < len(sizes):
        return f"axis {axis} is out of range for {len(sizes)} axes"
    return _out_of_range(indices.flatten().tolist(), sizes[axis])


def _gather_nd(node: ir.Node) -> str | None:
    indices, sizes = static_operands.constant(node, 1), static_operands.sizes(node, 0)
    first = node.attributes.get_int("batch_dims", 0)
    pairs = zip(sizes or (), static_operands.sizes(node, 1) or (), strict=False)
    for axis, (size, other) in enumerate(list(pairs)[:first]):
        if None not in (size, other) and size != other:
            return f"axis {axis} is of the batch, and has {size} elements and {other} indices"
    if indices is None or sizes is None or indices.ndim == 0:
        return None
    width = indices.shape[-1]
    if width > len(sizes) - first:
        return f"indices have {width} numbers for {len(sizes) - first} axes"
    for column in range(width):
        broken = _out_of_range(indices[..., column].flatten().tolist(), sizes[first + column])
        if broken is not None:
            return broken
    return None


def _split(node: ir.Node) -> str | None:
    constant, sizes = static_operands.constant(node, 1), static_operands.sizes(node, 0)
    outputs = node.attributes.get_int("num_outputs", len(node.outputs))
    if outputs != len(node.outputs):
        return f"num_outputs is {outputs}, and it has {len(node.outputs)} outputs"
    parts: Sequence[int] = (
        static_operands.ints(node, "split") if constant is None else constant.tolist()
    )
    if not parts:
        return None
    if any(part < 0 for part in parts) or len(parts) != len(node.outputs):
        return f"cannot split into the sizes {list(parts)}"
    axis = node.attributes.get_int("axis", 0)
    if sizes is not None and -len(sizes) <= axis < len(sizes):
        size = sizes[axis]
        if size is not None and sum(parts) != size:
            return f"the sizes {list(parts)} do not add up to {size}"
    return None


def _reshape(node: ir.Node) -> str | None:
    """As many elements before as after, if both are known."""
    x, target = static_operands.sizes(node, 0), static_operands.constant(node, 1)
    if x is None or target is None or None in x:
        return None
    wanted: list[int] = target.tolist()
    if not node.attributes.get_int("allowzero", 0):
        if any(size == 0 and axis >= len(x) for axis, size in enumerate(wanted)):
            return f"the shape {wanted} keeps axes that an input of shape {x} does not have"
        wanted = [x[axis] if size == 0 else size for axis, size in enumerate(wanted)]  # type: ignore[misc]
    have = math.prod(x)  # type: ignore[arg-type]
    known = math.prod(size for size in wanted if size != -1)
    fits = known == have if -1 not in wanted else have % known == 0 if known else have == 0
    return None if fits else f"an input of shape {x} has {have} elements, not those of {wanted}"


def _expand(node: ir.Node) -> str | None:
    """Sizes from the right are equal, or one of them is 1."""
    x, target = static_operands.sizes(node, 0), static_operands.constant(node, 1)
    if target is None:
        return None
    wanted: list[int] = target.tolist()
    if any(size < 0 for size in wanted):
        return f"the shape {wanted} has a negative size"
    pairs = zip(reversed(x or ()), reversed(wanted), strict=False)
    if any(size not in (None, 1, other) and other != 1 for size, other in pairs):
        return f"an input of shape {x} does not expand to {wanted}"
    return None


def _top_k(node: ir.Node) -> str | None:
    x, count = static_operands.sizes(node, 0), static_operands.constant(node, 1)
    if not x or count is None or count.size != 1:
        return None
    axis = node.attributes.get_int("axis", -1)
    size = x[axis] if -len(x) <= axis < len(x) else None
    if size is not None and count.item() > size:
        return f"takes {count.item()} of {size} elements"
    return None


def _col2im(node: ir.Node) -> str | None:
    """The columns of the input are the places of the block in the padded image."""
    x, image, block = (
        static_operands.sizes(node, 0),
        static_operands.constant(node, 1),
        static_operands.constant(node, 2),
    )
    if x is None or image is None or block is None:
        return None
    count = len(image)
    pads = static_operands.ints(node, "pads") or [0] * (2 * count)
    strides = static_operands.ints(node, "strides") or [1] * count
    dilations = static_operands.ints(node, "dilations") or [1] * count
    lengths = (len(x), len(block), len(pads), len(strides), len(dilations))
    least = min((*block.tolist(), *strides, *dilations), default=1)
    if lengths != (3, count, 2 * count, count, count) or least < 1 or min(pads, default=0) < 0:
        return "input, image, block, pads, strides and dilations do not fit each other"
    columns = math.prod(
        (int(image[a]) + pads[a] + pads[count + a] - dilations[a] * (int(block[a]) - 1) - 1)
        // strides[a]
        + 1
        for a in range(count)
    )
    rows = math.prod(block.tolist())
    if x[2] not in (None, columns) or (x[1] is not None and x[1] % rows):
        return f"the image has {columns} places for blocks of {rows}, the input is {x[1:]}"
    return None


def _rotary(node: ir.Node) -> str | None:
    """Tables of angles: a row for each position, or one for each element of the sequences."""
    x, *tables, positions = (static_operands.sizes(node, slot) for slot in range(4))
    if x is None or len(x) not in (3, 4):
        return None
    heads = node.attributes.get_int("num_heads", 0)
    if len(x) == 3 and (heads < 1 or (x[2] or 0) % heads):
        return f"num_heads {heads} does not divide the {x[2]} features of its 3 axes"
    width = x[3] if len(x) == 4 else None if x[2] is None else x[2] // heads
    turned = node.attributes.get_int("rotary_embedding_dim", 0) or width
    if turned is not None and (turned % 2 or not 0 <= turned <= (width or turned)):
        return f"{turned} elements of {width} cannot be turned in pairs"
    half = None if turned is None else turned // 2
    rows: static_operands.Sizes = [x[0], x[-2]]
    if positions is not None and not _fits(positions, rows):
        return f"its positions have shape {positions}, the sequences {rows}"
    given = len(node.inputs) > 3 and node.inputs[3] is not None
    wanted = [None, half] if given else [*rows, half]
    for name, table in zip(("cosines", "sines"), tables, strict=True):
        if table is not None and not _fits(table, wanted):
            return f"its {name} have shape {table}, {wanted} is needed"
    return None


def _fits(found: static_operands.Sizes, wanted: static_operands.Sizes) -> bool:
    return len(found) == len(wanted) and all(
        None in pair or pair[0] == pair[1] for pair in zip(found, wanted, strict=True)
    )


def _groups(node: ir.Node) -> str | None:
    """Channels divide into groups; a scale and a bias have one number for each channel."""
    x, groups = static_operands.sizes(node, 0), node.attributes.get_int("num_groups", 1)
    if groups < 1 or (x is not None and len(x) > 1 and (x[1] or 0) % groups):
        channels = "its channels" if x is None else f"{x[1]} channels"
        return f"{channels} cannot be split into {groups} groups"
    return None


def _losses(node: ir.Node) -> str | None:
    """Scores are [N, C, …], labels [N, …] and weights [C]."""
    scores, labels, weights = (static_operands.sizes(node, slot) for slot in range(3))
    if scores is None:
        return None
    if len(scores) < 2:
        return f"its scores have shape {scores}; there must be examples and classes"
    for what, found, wanted in (
        ("labels", labels, [scores[0], *scores[2:]]), ("weights", weights, scores[1:2])
    ):  # fmt: skip
        if found is not None and not _fits(found, wanted):
            return f"its {what} have shape {found}, scores of {scores} need {wanted}"
    return None


def _n_grams(node: ir.Node) -> str | None:
    """Lengths from 1 on, each with its place in the pool."""
    names = ("min_gram_length", "max_gram_length", "max_skip_count")
    least, most, skips = (node.attributes.get_int(name, 1) for name in names)
    counts = static_operands.ints(node, "ngram_counts")
    pool = static_operands.ints(node, "pool_int64s") or static_operands.strings(
        node, "pool_strings"
    )
    if sorted(counts) != counts or not all(0 <= n <= len(pool) for n in counts):
        return f"ngram_counts {counts} are no places in a pool of {len(pool)}, in order"
    if 1 <= least <= most <= len(counts) and skips >= 0:
        return None
    return (
        f"n-grams of {least} to {most} items with up to {skips} left out; the pool has those of "
        f"1 to {len(counts)}"
    )


def _not_scalar(node: ir.Node) -> str | None:
    return "a scalar has no axis to split" if static_operands.sizes(node, 0) == [] else None


Rule = Callable[[ir.Node], str | None]

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
RULES: dict[str, Rule] = {
    **dict.fromkeys((f"Reduce{name}" for name in _REDUCTIONS), _axes),
    **dict.fromkeys(("Squeeze", "Unsqueeze"), _axes),
    **dict.fromkeys(("Conv", "ConvTranspose"), window_rules.conv),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), window_rules.pool),
    **dict.fromkeys(("Div", "Mod"), _divisor),
    **dict.fromkeys(("Gather", "GatherElements", "ScatterElements"), _gather),
    **dict.fromkeys(("GatherND", "ScatterND"), _gather_nd),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _scales),
    **dict.fromkeys(("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"), _losses),
    **dict.fromkeys(GATES, by_need("gradtool.io.sequence_rules:recurrent")),
    "GroupNormalization": _groups,
    "Attention": by_need("gradtool.io.sequence_rules:attention"),
    "Col2Im": _col2im,
    "DeformConv": window_rules.deformable,
    "Expand": _expand,
    "Reshape": _reshape,
    "RotaryEmbedding": _rotary,
    "Split": _split,
    "SplitToSequence": _not_scalar,
    "TfIdfVectorizer": _n_grams,
    "TopK": _top_k,
    "Transpose": _permutation,
}

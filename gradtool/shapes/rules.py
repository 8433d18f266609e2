"""Inference rules in place of those of onnx-shape-inference 0.4, each for a stated reason."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from gradtool.graph.families import split_name
from gradtool.graph.injection import by_need
from gradtool.graph.limits import MOST_ELEMENTS
from gradtool.graph.summarized import MOST_SYMBOLS, summarized
from gradtool.operators import windows as window_rules
from gradtool.shapes import broadcast as broadcast_rules
from gradtool.shapes import contents, slices
from gradtool.shapes import sequences as sequence_rules
from gradtool.shapes.limits import guarded

if TYPE_CHECKING:
    from gradtool.shapes.folding import Folding

Dim = Any  # int | ir.SymbolicDim: the library has no types


@functools.cache
def register() -> None:
    """Put the rules in the library's registry; a later rule of the same version wins.

    A rule is given the library's own, to build on.  All are guarded by limits.  Constants are
    folded as soon as a node's shapes are inferred: the rules of later nodes know them.
    """
    from onnx_shape_inference import registry

    registry.collect()
    for (name, version), rule in RULES.items():
        domain, op = split_name(name)
        library = registry.get(domain, op, version)
        registry.register(domain, op, since_version=version)(functools.partial(rule, library))
    for domain, op, versions in list(registry.iter_supported()):
        for version in dict.fromkeys(versions):
            rule = functools.partial(_then_folded, registry.get(domain, op, version))
            registry.register(domain, op, since_version=version)(rule)


def _then_folded(rule: Any, ctx: Any, node: ir.Node) -> None:
    from gradtool.shapes.folding import active

    folding = active()
    if folding is None:
        guarded(rule, ctx, node)
    elif folding.never_runs(node):
        return
    elif folding.is_known(node):
        folding.repeat(ctx, node, lambda: _inferred(rule, ctx, node, folding))
    else:
        folding.memo(ctx).infer(node, lambda: _inferred(rule, ctx, node, folding))


def _inferred(rule: Any, ctx: Any, node: ir.Node, folding: Folding) -> None:
    guarded(rule, ctx, node)
    folding.fold(ctx, node)


def _known(ctx: Any, value: ir.Value | None) -> list[Dim] | None:
    """The elements of an integer vector if known, as numbers or expressions."""
    return None if value is None else ctx.get_symbolic_value(value)


def _constant_of_shape(_library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's reads constants only, and so loses every symbolic size."""
    value = node.attributes.get("value")
    dtype = ir.DataType.FLOAT if value is None else value.as_tensor().dtype
    dims = _known(ctx, node.inputs[0])
    if dims is None and node.inputs[0] is not None and node.inputs[0].shape is not None:
        rank = node.inputs[0].shape[0] if len(node.inputs[0].shape) == 1 else None
        if isinstance(rank, int):
            dims = [ctx.new_symbolic_dim() for _ in range(rank)]
    if dims is not None and any(isinstance(dim, int) and dim < 0 for dim in dims):
        ctx.record_error(node, f"the shape {dims} has a negative size")
    shape = None if dims is None else ir.Shape(dims)
    ctx.set_shape_and_dtype(node.outputs[0], shape, dtype)


def _concat(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's writes out every element and every sum, and believes that other axes agree."""
    shapes = [value.shape for value in node.inputs if value is not None]
    known = [shape for shape in shapes if shape is not None]
    ranks = {len(shape) for shape in known}
    if len(known) < len(node.inputs) or len(ranks) != 1:
        library(ctx, node)
        return
    rank, axis = ranks.pop(), node.attributes["axis"].as_int()
    sizes = [shape[axis] for shape in known] if -rank <= axis < rank else []
    long = rank == 1 and sum(size for size in sizes if isinstance(size, int)) > MOST_ELEMENTS
    if long or sum(not isinstance(size, int) for size in sizes) > MOST_SYMBOLS:
        dims = list(known[0])
        dims[axis] = functools.reduce(lambda a, b: summarized(a + b), sizes)
        first = node.inputs[0]
        ctx.set_shape_and_dtype(node.outputs[0], ir.Shape(dims), first and first.dtype)
    else:
        library(ctx, node)
    for shape in known:
        for index, (size, other) in enumerate(zip(shape, known[0], strict=True)):
            apart = isinstance(size, int) and isinstance(other, int) and size != other
            if index != axis % rank and apart:
                ctx.record_error(node, f"shapes {known[0]} and {shape} cannot be joined")


def _reshape(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's divides by 1 for a reshape to one axis, slow for open sizes."""
    x, y = node.inputs[0], node.outputs[0]
    known = _known(ctx, x)
    if x is None or x.shape is None or known is not None or _known(ctx, node.inputs[1]) != [-1]:
        library(ctx, node)
    else:
        ctx.set_shape_and_dtype(y, ir.Shape([math.prod(x.shape)]), x.dtype)


def _split(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's takes computed sizes to be equal, and loses those of a symbolic axis."""
    x = node.inputs[0]
    given = node.inputs[1] if len(node.inputs) > 1 else None
    sizes = _known(ctx, given)
    if sizes is None and given is not None:
        sizes = [ctx.new_symbolic_dim() for _ in node.outputs]
    if x is None or x.shape is None or sizes is None or all(isinstance(n, int) for n in sizes):
        library(ctx, node)
    if x is None or x.shape is None:
        return
    axis = node.attributes.get_int("axis", 0) % max(len(x.shape), 1)
    if sizes is None and isinstance(x.shape[axis], ir.SymbolicDim):
        sizes = _equal_parts(x.shape[axis], node)
    if sizes is None or all(isinstance(size, int) for size in sizes):
        return
    for output, size in zip(node.outputs, sizes, strict=True):
        dims = list(x.shape)
        dims[axis] = size
        ctx.set_shape_and_dtype(output, ir.Shape(dims), x.dtype)


def _equal_parts(dim: Dim, node: ir.Node) -> list[Dim] | None:
    """The sizes of a split into equal parts, None if the last may be smaller."""
    if "split" in node.attributes or (len(node.inputs) > 1 and node.inputs[1] is not None):
        return None
    parts = len(node.outputs)
    size = dim // parts
    if isinstance(dim, int) or isinstance(size, int) or (size * parts).simplify() != dim.simplify():
        return None
    return [size] * parts


def _squeeze(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's drops every axis of size one if the axes are computed."""
    library(ctx, node)
    x, y = node.inputs[0], node.outputs[0]
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    if x is None or x.shape is None or axes is None or _known(ctx, axes) is not None:
        return
    count = axes.shape[0] if axes.shape is not None and len(axes.shape) == 1 else None
    rank = len(x.shape) - count if isinstance(count, int) else -1
    shape = ir.Shape(ctx.new_symbolic_dim() for _ in range(rank)) if rank >= 0 else None
    ctx.set_shape_and_dtype(y, shape, x.dtype)


def _tile(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's knows nothing of computed repeats, though the rank is certain."""
    library(ctx, node)
    x, y = node.inputs[0], node.outputs[0]
    if y.shape is None and x is not None and x.shape is not None:
        ctx.set_shape(y, ir.Shape([ctx.new_symbolic_dim() for _ in x.shape]))


def _fused_matmul(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's does not know transposed batches."""
    given = node.attributes
    if not (given.get_int("transBatchA", 0) or given.get_int("transBatchB", 0)):
        library(ctx, node)
        return
    sides = []
    for value, which in zip(node.inputs, "AB", strict=True):
        if value is None or value.shape is None:
            return
        dims = list(value.shape)
        if given.get_int(f"transBatch{which}", 0):
            dims = [*dims[1:-1], dims[0], dims[-1]]
        if given.get_int(f"trans{which}", 0):
            dims[-2:] = dims[:-3:-1]
        sides.append(dims)
    a, b = sides
    shape = ir.Shape([*a[:-2], a[-2], b[-1]])
    ctx.set_shape_and_dtype(node.outputs[0], shape, node.inputs[0].dtype)  # type: ignore[union-attr]


def _group_normalization(_library: Any, ctx: Any, node: ir.Node) -> None:
    """The library knows the operator from opset 21 on only."""
    x = node.inputs[0]
    if x is not None:
        ctx.set_shape_and_dtype(node.outputs[0], x.shape, x.dtype)


def _reduce(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's knows nothing of computed axes, though the rank is certain."""
    library(ctx, node)
    contents.reduced(ctx, node)
    x, y = node.inputs[0], node.outputs[0]
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    if y.shape is not None or x is None or x.shape is None or axes is None or axes.shape is None:
        return
    rank = len(x.shape)
    if not node.attributes.get_int("keepdims", 1):
        count = axes.shape[0]
        rank = rank - count if isinstance(count, int) and count > 0 else -1
    if rank >= 0:
        ctx.set_shape(y, ir.Shape([ctx.new_symbolic_dim() for _ in range(rank)]))


REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip


def _truth(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's takes a cast to a truth value for a number still, and knows no Not."""
    library(ctx, node)
    if node.outputs[0].dtype == ir.DataType.BOOL:
        contents.propagate(ctx, node)


def _non_zero(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's does not count the elements of a constant, as opset 9 needs."""
    library(ctx, node)
    sizes = contents.is_ones(node.inputs[0])
    if sizes:
        total = functools.reduce(lambda a, b: a * b, sizes)
        ctx.set_shape(node.outputs[0], ir.Shape([len(sizes), total]))


def _max_unpool(_library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's gives every spatial size a new symbol, even if it can be computed."""
    x = node.inputs[0]
    if x is None or x.shape is None:
        return
    given_shape = node.inputs[2] if len(node.inputs) > 2 else None
    shape = _known(ctx, given_shape)
    if given_shape is not None and shape is None:
        shape = [ctx.new_symbolic_dim() for _ in x.shape]
    if shape is None:
        from gradtool.graph.attributes import arguments
        from gradtool.operators.windows import Window

        given = arguments(node)
        window = Window.of(given["kernel_shape"], (), given)
        axes = zip(
            x.shape[2:], window.strides, window.kernel, window.begin, window.end, strict=True
        )
        shape = [*x.shape[:2], *((n - 1) * s + k - b - e for n, s, k, b, e in axes)]
    ctx.set_shape_and_dtype(node.outputs[0], ir.Shape(shape), x.dtype)


def _attention(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's shows keys and values in the layout of three-dimensional inputs."""
    library(ctx, node)
    heads = node.attributes.get_int("kv_num_heads", 0)
    past = [*node.inputs[4:6], None, None][:2]
    pairs = zip(node.inputs[1:3], past, node.outputs[1:3], strict=False)
    for new, old, shown in pairs:
        if old is None and new is not None and new.shape is not None and len(new.shape) == 3:
            b, length, size = new.shape
            ctx.set_shape(shown, ir.Shape([b, heads, length, size // max(heads, 1)]))


def _mel_weight_matrix(_library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's takes bins for rows, and the length of the transform for columns."""
    sizes = []
    for value in node.inputs[:2]:
        tensor = None if value is None else ir.convenience.get_const_tensor(value)
        sizes.append(ctx.new_symbolic_dim() if tensor is None else int(tensor.numpy().item()))
    bins, length = sizes
    dtype = ir.DataType(node.attributes.get_int("output_datatype", 1))
    rows = length // 2 + 1 if isinstance(length, int) else length
    ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([rows, bins]), dtype)


def _unique(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's takes x to be flattened even if an axis is given."""
    library(ctx, node)
    x, y = node.inputs[0], node.outputs[0]
    if x is None or x.shape is None or "axis" not in node.attributes:
        return
    axis = node.attributes["axis"].as_int() % len(x.shape)
    if len(node.outputs) > 2:
        ctx.set_shape(node.outputs[2], ir.Shape([x.shape[axis]]))
    if y.shape is not None and len(y.shape) == 1:
        ctx.set_shape(y, ir.Shape([*x.shape[:axis], y.shape[0], *x.shape[axis + 1 :]]))


ML_RULES = {
    "ArrayFeatureExtractor": "array_feature_extractor",
    "FeatureVectorizer": "feature_vectorizer",
    "Imputer": "imputer",
    "LinearClassifier": "linear_classifier",
    "LinearRegressor": "regressor",
    "Normalizer": "like_x",
    "OneHotEncoder": "one_hot_encoder",
    "SVMRegressor": "regressor",
    "Scaler": "like_x",
    "TreeEnsemble": "tree_ensemble",
}
RULES = {
    ("Attention", 23): _attention,
    ("ConstantOfShape", 9): _constant_of_shape,
    ("Concat", 4): _concat,
    ("com.microsoft::FusedMatMul", 1): _fused_matmul,
    ("GroupNormalization", 18): _group_normalization,
    ("If", 1): by_need("gradtool.shapes.control:if_"),
    ("Loop", 1): by_need("gradtool.shapes.control:loop"),
    ("MelWeightMatrix", 17): _mel_weight_matrix,
    ("MaxUnpool", 9): _max_unpool,
    ("Cast", 6): _truth,
    ("NonZero", 9): _non_zero,
    ("Reshape", 5): _reshape,
    ("Resize", 10): by_need("gradtool.operators.resize:infer"),
    ("Not", 1): _truth,
    ("Split", 2): _split,
    ("Squeeze", 1): _squeeze,
    ("Tile", 6): _tile,
    ("Unique", 11): _unique,
    **{(op, 1): _reduce for op in REDUCTIONS},
    **broadcast_rules.RULES,
    **{
        (f"ai.onnx.ml::{op}", 1): by_need(f"gradtool.shapes.ml:{rule}")
        for op, rule in ML_RULES.items()
    },
    **window_rules.RULES,
    **sequence_rules.RULES,
    **slices.RULES,
}

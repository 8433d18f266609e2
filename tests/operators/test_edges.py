"""Half precision, empty batches and 0-d tensors, over the case table and through the arena."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter

import cases
import ml_dtypes
import numpy as np
import pytest
from cases import Case, Floats
from checkers import check_gradient, differentiated, evaluate
from conftest import sampled
from random_graphs import Node, Recipe, assemble

import gradtool as gt
from gradtool.errors import ModelError
from gradtool.graph.families import FAMILIES, split_name
from gradtool.graph.specs import Spec
from gradtool.ops import gradients
from gradtool.ops import kernels as registry
from gradtool.ops.shared.call import call

for family in FAMILIES:
    if find_spec(f"operators.{family}"):
        import_module(f"operators.{family}")
DIFFERENTIATED = [c for c in cases.CASES if c.gradient]
HALVES = [np.float16, ml_dtypes.bfloat16]
ULPS = 16.0  # of the norm of a gradient

# ---------------------------------------------------------------------- half precision


@pytest.mark.parametrize("dtype", HALVES, ids=["float16", "bfloat16"])
@pytest.mark.parametrize("case", sampled(DIFFERENTIATED, by=attrgetter("op")), ids=lambda c: c.id)
def test_gradients_in_half_precision_agree_with_float64(case, dtype):
    """On the same rounded inputs; the gradient itself is rounded, and so are sums in between."""
    with np.errstate(all="ignore"):
        model, feeds, names = differentiated(case, dtype)
        found = evaluate(model, feeds)
        wide, _, wide_names = differentiated(case)
        exact = evaluate(
            wide,
            {
                k: a.astype(np.float64) if a.dtype in (dtype, np.float32) else a
                for k, a in feeds.items()
            },
        )
    for name, other in zip(names, wide_names, strict=True):
        gradient, expected = found[name].astype(np.float64), exact[other]
        assert gradient.shape == expected.shape
        error = float(np.linalg.norm(gradient - expected))
        size = float(np.linalg.norm(expected)) + 1e-2
        assert error <= ULPS * float(ml_dtypes.finfo(dtype).eps) * size


# ------------------------------------------------------------------------ empty batches

Slots = tuple[int, ...]


def _axis_is_free(case: Case) -> bool:
    """Whether the operator works along another axis than the first."""
    rank = len(case.inputs[0].shape)
    axis = case.attributes.get("axis", {"TopK": -1, "LpNormalization": -1}.get(case.op, 0))
    return rank > 1 and axis % rank != 0


def _pads_are_free(case: Case) -> bool:
    pads, axes = case.inputs[1], case.inputs[3] if len(case.inputs) > 3 else None
    rank = len(case.inputs[0].shape)
    axes = range(rank) if axes is None else [int(a) % rank for a in axes]
    return all(a != 0 or (pads[i], pads[len(pads) // 2 + i]) == (0, 0) for i, a in enumerate(axes))


def _sizes_are_free(case: Case) -> bool:
    sizes = case.inputs[3] if len(case.inputs) > 3 else None
    return sizes is None and len(case.inputs[0].shape) > 1


# Where the first axis of the inputs in these slots is a batch, that can have no elements; the
# others are parameters.  Other operators: every input of the rank and first size of input 0.
BATCHED: dict[str, Slots] = {
    "Attention": (0, 1, 2, 4, 5),
    "BatchNormalization": (0,),
    "ai.gradtool::BatchNormalizationTraining": (0,),
    "ai.gradtool::LinearCrossEntropy": (0, 1, 5),
    "Conv": (0,),
    "ConvTranspose": (0,),
    "DeformConv": (0, 2, 4),
    "GatherElements": (0, 1),
    "Gemm": (0,),
    "GroupNormalization": (0,),
    "InstanceNormalization": (0,),
    "LayerNormalization": (0,),
    "MatMul": (0,),
    "MaxUnpool": (0, 1),
    "NegativeLogLikelihoodLoss": (0, 1),
    "PRelu": (0,),
    "Pad": (0,),
    "RMSNormalization": (0,),
    "Resize": (0,),
    "ReverseSequence": (0, 1),
    "RotaryEmbedding": (0, 3),
    "SoftmaxCrossEntropyLoss": (0, 1),
}
FREE: dict[str, Callable[[Case], bool]] = {
    "ai.onnx.ml::ArrayFeatureExtractor": lambda c: len(c.inputs[0].shape) > 1,
    "ai.onnx.ml::LinearRegressor": lambda c: len(c.inputs[0].shape) > 1,
    "ai.gradtool::QuantizedMatMul": lambda c: len(c.inputs[0].shape) > 1,
    "Gemm": lambda c: not c.attributes.get("transA", 0) and not _shares_rows(c),
    "MatMul": lambda c: (
        len(c.inputs[0].shape) > len(c.inputs[1].shape) > 0
        or (len(c.inputs[0].shape), len(c.inputs[1].shape)) == (2, 2)
    ),
    "PRelu": lambda c: len(c.inputs[1].shape) < len(c.inputs[0].shape),
    "Pad": _pads_are_free,
    "LayerNormalization": lambda c: c.attributes.get("axis", -1) % len(c.inputs[0].shape) != 0,
    "Resize": _sizes_are_free,
    "RotaryEmbedding": lambda c: len(c.inputs) > 3,
    "ReverseSequence": lambda c: c.attributes.get("batch_axis", 1) == 0,
    **dict.fromkeys(("Compress", "Gather", "GatherElements", "Split", "TopK"), _axis_is_free),
}
# The first axis is a row of a matrix, an image that regions name, or bound to a constant.
NOT_BATCHED = {
    "AffineGrid", "Det", "Einsum", "Expand", "GRU", "GatherND", "LSTM", "MaxRoiPool", "RNN",
    "Reshape", "RoiAlign", "ScatterElements", "ScatterND", "Squeeze", "TensorScatter",
}  # fmt: skip
# A mean over nothing: what comes out is NaN.
MEANS = ("mean",)


def _shares_rows(case: Case) -> bool:
    bias = case.inputs[2] if len(case.inputs) > 2 else None
    return bias is not None and len(bias.shape) == 2 and bias.shape[0] > 1


def emptied(case: Case) -> Case | None:
    """The case with an empty batch, if it has a batch."""
    first = case.inputs[0]
    batched = isinstance(first, Floats) and len(first.shape) > 0 and case.op not in NOT_BATCHED
    if not batched or not FREE.get(case.op, lambda _: True)(case):
        return None
    size, rank = first.shape[0], len(first.shape)
    slots = BATCHED.get(case.op)
    if slots is None:
        shapes = [() if given is None else given.shape for given in case.inputs]
        slots = tuple(i for i, s in enumerate(shapes) if len(s) == rank and s[0] == size)
    return _with_empty(case, dict.fromkeys(slots, 0))


def _with_empty(case: Case, axes: dict[int, int]) -> Case:
    """The case without elements along one axis of each input of some slots."""
    inputs = list(case.inputs)
    for slot, axis in axes.items():
        given = inputs[slot] if slot < len(inputs) else None
        if given is None or not given.shape:
            continue
        if isinstance(given, Floats):
            inputs[slot] = replace(given, shape=(*given.shape[:axis], 0, *given.shape[axis + 1 :]))
        else:
            inputs[slot] = given[:0]
    return replace(case, inputs=tuple(inputs), note=f"{case.note} empty")


def recurrent(case: Case) -> Case:
    """The batch is axis 1 of x and of states, or axis 0 with `layout=1`."""
    axis = 1 - case.attributes.get("layout", 0)
    return _with_empty(case, {0: axis, 4: 0, 5: axis, 6: axis})


EMPTY = [c for c in map(emptied, DIFFERENTIATED) if c is not None]
EMPTY += [recurrent(c) for c in DIFFERENTIATED if c.op in ("GRU", "LSTM", "RNN")]
EMPTY += [
    Case("Einsum", (Floats((0, 3)), Floats((3, 4))), {"equation": "ij,jk->ik"}),
    Case("Einsum", (Floats((0, 1, 3)), Floats((1, 2, 3))), {"equation": "...j,...j->..."}),
    Case("Expand", (Floats((0, 1, 4)), cases.integers(1, 3, 1))),
    Case("GatherND", (Floats((0, 4)), np.zeros((0, 1), np.int64)), {"batch_dims": 1}),
    Case("GridSample", (Floats((2, 0, 4, 5)), Floats((2, 3, 2, 2)))),
    Case("GridSample", (Floats((2, 0, 5)), Floats((2, 3, 1))), {"mode": "cubic"}),
    Case("Reshape", (Floats((0, 3, 4)), cases.integers(0, 12))),
    Case("Reshape", (Floats((0, 3, 4)), cases.integers(-1, 4))),
    Case(
        "ScatterElements",
        (Floats((0, 4)), np.zeros((0, 2), np.int64), Floats((0, 2))),
        {"axis": 1},
    ),
    Case("Squeeze", (Floats((0, 1, 4)), cases.integers([1]))),
]


@pytest.mark.parametrize("case", sampled(EMPTY, by=attrgetter("op")), ids=lambda c: c.id)
def test_an_empty_batch_runs_forward_and_backward(case):
    """With the shapes that were inferred; parameters get zeros, for no sample has a say."""
    with np.errstate(all="ignore"):
        model, feeds, names = differentiated(case)
        found = evaluate(model, feeds)
    slots = [s for s, i in enumerate(case.inputs) if isinstance(i, Floats) and not i.fixed]
    for slot, name in zip(slots, names, strict=True):
        assert found[name].shape == feeds[f"x{slot}"].shape
        if 0 in feeds["x0"].shape and case.attributes.get("reduction", "mean") not in MEANS:
            assert not found[name].any()


# --------------------------------------------------------------------------------- 0-d


def scalar(case: Case) -> Case | None:
    """The case of an operator that works element by element, on single numbers."""
    entry = gradients.find(*split_name(case.op), case.opset)
    families = ("gradtool.ops.elementwise.", "gradtool.ops.activation.")
    pointwise = entry is not None and entry.rule.__module__.startswith(families)
    numbers = all(isinstance(i, Floats) for i in case.inputs if i is not None)
    if not (pointwise and numbers) or any(i is not None and not i.shape for i in case.inputs):
        return None
    made = (None if i is None else replace(i, shape=(), distinct=False) for i in case.inputs)
    return replace(case, inputs=tuple(made), note=f"{case.note} 0-d")


AXES = ("Softmax", "LogSoftmax", "Hardmax")  # need one
SCALARS = {c.op: c for c in map(scalar, DIFFERENTIATED) if c is not None and c.op not in AXES}


@pytest.mark.parametrize("case", SCALARS.values(), ids=lambda c: c.id)
def test_single_numbers_have_gradients(case):
    with np.errstate(all="ignore"):
        check_gradient(case)


# ------------------------------------------------------------------------------- graphs


def network(batch: int) -> Recipe:
    """A convolution, a normalisation, a gate, a product, a softmax and a sum."""
    rng = np.random.default_rng(4)
    weights = {
        "kernel": rng.uniform(-0.5, 0.5, (4, 2, 3, 3)),
        "scale": rng.uniform(0.5, 1.5, 4),
        "bias": rng.uniform(-0.5, 0.5, 4),
        "w": rng.uniform(-0.3, 0.3, (100, 5)),
        "target": rng.uniform(-1, 1, 5),
    }
    nodes = (
        Node("Conv", ("x", "kernel"), ("c",), {"pads": [1, 1, 1, 1]}),
        Node("InstanceNormalization", ("c", "scale", "bias"), ("n",)),
        Node("Gelu", ("n",), ("g",)),
        Node("Flatten", ("g",), ("f",)),
        Node("MatMul", ("f", "w"), ("m",)),
        Node("LogSoftmax", ("m",), ("s",)),
        Node("Mul", ("s", "target"), ("t",)),
        Node("ReduceSum", ("t",), ("loss",), {"keepdims": 0}),
    )
    return Recipe({"x": rng.uniform(-1, 1, (batch, 2, 5, 5))}, weights, {}, nodes)


def gradients_of(recipe: Recipe, dtype):
    training = gt.grad(assemble(recipe, dtype), loss="loss", wrt=list(recipe.leaves))
    fed = {n: a.astype(dtype) for n, a in recipe.inputs.items()}
    return gt.run(training, fed, check_arena=True).gradients


@pytest.mark.parametrize("dtype", HALVES, ids=["float16", "bfloat16"])
def test_a_network_in_half_precision_trains_in_the_arena(dtype):
    recipe = network(3)
    rounded = Recipe(
        {n: a.astype(dtype).astype(np.float64) for n, a in recipe.inputs.items()},
        {n: a.astype(dtype).astype(np.float64) for n, a in recipe.weights.items()},
        {},
        recipe.nodes,
    )
    exact, found = gradients_of(rounded, np.float64), gradients_of(recipe, dtype)
    for name, gradient in exact.items():
        error = np.linalg.norm(found[name].astype(np.float64) - gradient)
        assert error <= 2 * ULPS * float(ml_dtypes.finfo(dtype).eps) * np.linalg.norm(gradient)


def test_a_network_of_an_empty_batch_has_zero_gradients():
    found = gradients_of(network(0), np.float32)

    assert found["x"].shape == (0, 2, 5, 5)
    assert not any(gradient.any() for gradient in found.values())


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ij,jk->ik", [(2, 3), (4, 5)]), ("ii->i", [(0, 3)]), ("...i,...i->...", [(2, 3), (0, 3)])],
)
def test_an_index_of_two_sizes_is_an_error(equation, shapes):
    kernel = registry.find("", "Einsum", 20)
    arrays = [np.zeros(shape) for shape in shapes]

    with pytest.raises(ModelError, match="sizes that differ"):
        call(np, kernel, arrays, [Spec((), np.dtype(np.float64))], {"equation": equation})

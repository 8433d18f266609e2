"""The layout and index families where frameworks differ, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, fixed, floats, integers
from checkers import build, differentiated, evaluate

from gradtool.emit.builder import Builder
from gradtool.errors import NotDifferentiable
from gradtool.graph.specs import Spec
from gradtool.ops import kernels as registry
from gradtool.ops.driver import differentiate
from gradtool.ops.shared.call import call


def gradients(op, arrays, constants=(), outputs=1, **attributes):
    """The gradients of Σ y by `arrays`, whose values are given."""
    given = [floats(*a.shape) for a in arrays]
    case = Case(op, (*given[:1], *constants, *given[1:]), attributes, outputs)
    model, feeds, names = differentiated(case)
    slots = [n for n in feeds if n.startswith("x")]
    feeds |= dict(zip(slots, arrays, strict=True))
    feeds |= {n: np.ones_like(v) for n, v in feeds.items() if n.startswith("c_")}
    values = evaluate(model, feeds)
    return [values[n].tolist() for n in names]


def run(op, *inputs, shape, dtype, **attributes):
    """A kernel by itself."""
    found = registry.find("ai.gradtool" if op.endswith("Grad") else "", op, 20)
    return call(np, found, inputs, [Spec(shape, np.dtype(dtype))], attributes)[0]


def test_repeated_indices_of_a_gather_add_up():
    x = np.array([1.0, 2.0, 3.0])

    assert gradients("Gather", [x], [integers(0, 0, -1, 0)]) == [[3.0, 0.0, 1.0]]


@pytest.mark.parametrize("how", ["max", "min"])
@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_equal_terms_of_a_scatter_share_the_gradient(op, how):
    indices = integers(0, 0, 1) if op == "ScatterElements" else integers([[0], [0], [1]])
    x, updates = np.array([1.0, 5.0]), np.array([1.0, 1.0, 5.0])
    third = 1 / 3

    assert gradients(op, [x, updates], [indices], reduction=how) == [
        [third, 0.5],
        [third, third, 0.5],
    ]


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_products_with_zero_factors_have_exact_gradients(op):
    indices = integers(0, 0, 1, 2) if op == "ScatterElements" else integers([[0], [0], [1], [2]])
    x, updates = np.array([2.0, 0.0, 0.0]), np.array([0.0, 4.0, 3.0, 0.0])

    assert gradients(op, [x, updates], [indices], reduction="mul") == [
        [0.0, 3.0, 0.0],
        [8.0, 0.0, 0.0, 0.0],
    ]


def test_the_lowest_index_of_equal_elements_is_taken():
    x = np.array([[2.0, 3.0, 3.0, 2.0]])

    assert gradients("TopK", [x], [integers([3])], outputs=2, axis=1) == [[[1.0, 1.0, 1.0, 0.0]]]


@pytest.mark.parametrize(
    ("op", "indices"),
    [("ScatterElements", integers(0, 1, -3)), ("ScatterND", integers([[0], [1], [-3]]))],
)
def test_updates_that_overwrite_each_other_are_refused(op, indices):
    case = Case(op, (floats(3), indices, floats(3)))

    with pytest.raises(NotDifferentiable, match="repeated indices"):
        differentiated(case)


def test_an_aspect_ratio_policy_needs_known_sizes():
    sizes = integers(7, 9)
    given = (floats(4, 6), None, None, sizes)
    model, _ = build(
        Case("Resize", given, {"keep_aspect_ratio_policy": "not_larger", "mode": "linear"}),
        symbolic=True,
    )
    y = model.graph.outputs[0]

    with pytest.raises(NotDifferentiable, match="keep_aspect_ratio_policy"):
        differentiate(Builder(model), {y: y}, list(model.graph.inputs))


def test_half_precision_rows_are_added_in_single_precision():
    dy = np.full((4096, 200), 0.25, np.float16)
    indices = np.zeros(4096, np.int64)
    dx = run("GatherGrad", dy, indices, integers(2, 200), shape=(2, 200), dtype=np.float16)

    assert (dx[0] == 1024).all()
    assert (dx[1] == 0).all()


def test_an_index_out_of_bounds_is_an_error():
    with pytest.raises(IndexError, match="index"):
        run("Gather", np.zeros(3), integers(3), shape=(1,), dtype=np.float64)


def test_a_backward_slice_from_before_the_start_begins_at_the_first_element():
    y = run(
        "Slice", np.arange(5.0), *(integers([n]) for n in (-9, -99, 0, -1)), shape=(1,), dtype=float
    )

    assert y.tolist() == [0.0]


def test_an_empty_axis_has_no_elements_to_gather():
    assert run("Gather", np.zeros((0, 3)), integers([]), shape=(0, 3), dtype=float).shape == (0, 3)


def test_indices_are_not_differentiated():
    case = Case("OneHot", (integers(0, 1), integers([3]), fixed(2)))
    model, _, names = differentiated(case)

    assert names == []
    assert len(model.graph.outputs) == 1

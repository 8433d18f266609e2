"""Where PyTorch has the operator, its gradients are ours: outside of images, on elements, at
singular matrices."""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, Floats
from checkers import differentiated, evaluate

from gradtool.ops.composites.calls import expand

pytestmark = pytest.mark.extra

torch = pytest.importorskip("torch")


class Given(Floats):
    """An input of given values."""

    def draw(self, rng):  # noqa: ARG002
        return VALUES[self.shape]


VALUES: dict[tuple[int, ...], np.ndarray] = {}


def gradients(op, inputs, opset=20, **attributes):
    """Output and gradients of `Σ y·c` in float64, and the c."""
    VALUES.clear()
    VALUES.update({np.shape(x): np.asarray(x, np.float64) for x in inputs})
    given = tuple(Given(np.shape(x)) for x in inputs)
    model, feeds, names = differentiated(Case(op, given, attributes, opset=opset))
    found = evaluate(model, feeds)
    return found["y0"], [found[n] for n in names], feeds["c_y0"]


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("mode", "theirs"), [("nearest",) * 2, ("linear", "bilinear")])
def test_grid_sample_is_that_of_torch(mode, theirs, padding, corners):
    rng = np.random.default_rng(4)
    x, grid = rng.normal(size=(2, 3, 5, 4)), rng.uniform(-1.9, 1.9, (2, 6, 7, 2))
    y, grads, c = gradients(
        "GridSample", [x, grid], mode=mode, padding_mode=padding, align_corners=corners
    )
    tx, tgrid = (torch.tensor(v, requires_grad=True) for v in (x, grid))
    ty = torch.nn.functional.grid_sample(
        tx, tgrid, mode=theirs, padding_mode=padding, align_corners=bool(corners)
    )
    ty.backward(torch.tensor(c))
    np.testing.assert_allclose(y, ty.detach(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(grads[0], tx.grad, rtol=1e-9, atol=1e-12)
    if mode != "nearest":
        np.testing.assert_allclose(grads[1], tgrid.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_cubic_grid_sample_is_that_of_torch(padding):
    rng = np.random.default_rng(4)
    x, grid = rng.normal(size=(2, 3, 5, 4)), rng.uniform(-1.3, 1.3, (2, 6, 7, 2))
    y, grads, c = gradients("GridSample", [x, grid], mode="cubic", padding_mode=padding)
    tx, tgrid = (torch.tensor(v, requires_grad=True) for v in (x, grid))
    ty = torch.nn.functional.grid_sample(
        tx, tgrid, mode="bicubic", padding_mode=padding, align_corners=False
    )
    ty.backward(torch.tensor(c))
    np.testing.assert_allclose(y, ty.detach(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(grads[0], tx.grad, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(grads[1], tgrid.grad, rtol=1e-9, atol=1e-12)


def test_the_gradient_of_a_determinant_exists_where_the_matrix_is_singular():
    x = np.array([[[1.0, 2, 3], [2, 4, 6], [0, 1, 5]], [[1, 2, 3], [2, 4, 6], [3, 6, 9]]])
    _, (dx,), c = gradients("Det", [x])

    cofactor = [[14, -10, 2], [-7, 5, -1], [0, 0, 0]]
    np.testing.assert_allclose(dx[0], c[0] * np.array(cofactor), atol=1e-12)
    np.testing.assert_allclose(dx[1], np.zeros((3, 3)), atol=1e-12)


def test_cumulative_products_with_zeros_are_exact():
    x = np.array([2.0, 0, 3, 0, 5])
    y, (dx, *_), c = gradients_of_products(x)
    t = torch.tensor(x, requires_grad=True)
    torch.cumprod(t, 0).backward(torch.tensor(c))

    np.testing.assert_array_equal(y, [2, 0, 0, 0, 0])
    np.testing.assert_allclose(dx, t.grad, atol=1e-12)


def gradients_of_products(x):
    VALUES.clear()
    VALUES[x.shape] = x
    model, feeds, names = differentiated(Case("CumProd", (Given(x.shape), np.int64(0)), opset=26))
    found = evaluate(model, feeds)
    return found["y0"], [found[n] for n in names], feeds["c_y0"]


@pytest.mark.parametrize("bodies", [False, True])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_without_samples_are_zero_and_have_no_gradient(mode, bodies):
    rng = np.random.default_rng(4)
    x, rois = rng.normal(size=(1, 2, 5, 6)), np.array([[3.0, 3.0, 1.0, 1.0], [1.3, 1.2, 3.9, 4.1]])
    VALUES.clear()
    VALUES.update({x.shape: x, rois.shape: rois})
    inputs = Given(x.shape), Given(rois.shape), np.zeros(2, np.int64)
    model, feeds, (dx, drois) = differentiated(Case("RoiAlign", inputs, {"mode": mode}))
    if bodies:
        expand(model, lambda _: False)

    found = evaluate(model, feeds)
    assert not found["y0"][0].any()
    assert not found[drois][0].any()
    assert found[drois][1].any()
    none = evaluate(model, feeds | {"x1": rois[[0, 0]]})
    assert not any(none[name].any() for name in ("y0", dx, drois))

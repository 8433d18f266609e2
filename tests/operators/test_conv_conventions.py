"""Convolution, pooling and normalisation at ties and zeros, and against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, Floats
from checkers import differentiated, evaluate
from graphs import parse
from native_calls import needs_library

import gradtool as gt
from gradtool.graph.specs import Spec
from gradtool.ops import kernels as registry
from gradtool.ops.shared.call import call


def gradients(op, *arrays, outputs=1, opset=20, dtype=np.float64, heads=None, **attributes):
    """The gradients of `Σ y · head` (ones unless given) by all inputs."""
    given = tuple(Floats(a.shape) for a in arrays)
    with np.errstate(invalid="ignore"):  # of the random inputs that are replaced below
        model, feeds, names = differentiated(Case(op, given, attributes, outputs, opset), dtype)
    feeds |= {f"x{slot}": a.astype(dtype) for slot, a in enumerate(arrays)}
    for index, name in enumerate(n for n in feeds if n.startswith("c_")):
        head = np.ones_like(feeds[name]) if heads is None else heads[index]
        feeds[name] = head.astype(dtype)
    values = evaluate(model, feeds)
    return [values[n] for n in names]


def normal(*shape, seed=5):
    return np.random.default_rng(seed).normal(size=shape)


def test_of_equal_maxima_the_first_in_the_window_gets_the_gradient():
    x = np.array([[[1.0, 1.0, 0.0, 1.0]]])

    (dx,) = gradients("MaxPool", x, kernel_shape=[2], strides=[2])

    assert dx.tolist() == [[[1.0, 0.0, 0.0, 1.0]]]


def test_overlapping_windows_add_to_a_shared_maximum():
    x = np.array([[[0.0, 2.0, 0.0]]])

    (dx,) = gradients("MaxPool", x, kernel_shape=[2])

    assert dx.tolist() == [[[0.0, 2.0, 0.0]]]


def test_of_equal_maxima_of_a_plane_the_first_gets_the_gradient():
    x = np.array([[[3.0, 1.0, 3.0]]])

    (dx,) = gradients("GlobalMaxPool", x)

    assert dx.tolist() == [[[1.0, 0.0, 0.0]]]


def test_a_window_of_nan_is_nan_and_keeps_its_place_inside_the_window():
    x = np.array([[[np.nan, 1.0, 2.0, 3.0]]])
    kernel = registry.find("", "MaxPool", 20)
    out = [Spec((1, 1, 2), x.dtype), Spec((1, 1, 2), np.dtype(np.int64))]

    y, places = call(np, kernel, [x], out, {"kernel_shape": [2], "strides": [2]})

    assert np.isnan(y[0, 0, 0])
    assert places.tolist() == [[[0, 3]]]


@pytest.mark.parametrize("p", [1, 2])
def test_a_zero_vector_normalises_to_zero_with_zero_gradient(p):
    (dx,) = gradients("LpNormalization", np.zeros((1, 3)), p=p)

    assert dx.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("p", [1, 2, 3])
def test_windows_of_zeros_have_zero_gradient(p):
    (pooled,) = gradients("LpPool", np.zeros((1, 1, 4)), kernel_shape=[2], p=p)
    (whole,) = gradients("GlobalLpPool", np.zeros((1, 1, 4)), p=p)

    assert not pooled.any()
    assert not whole.any()


def test_a_constant_plane_normalises_without_nan():
    x, scale = np.full((1, 2, 3), 4.0), np.array([2.0, 3.0])

    dx, dscale, dbias = gradients("InstanceNormalization", x, scale, np.zeros(2))

    assert not dx.any()
    assert dscale.tolist() == [0.0, 0.0]
    assert dbias.tolist() == [3.0, 3.0]


def test_statistics_of_numbers_far_from_zero_do_not_cancel():
    x = (normal(4, 512) + 1e4).astype(np.float32)
    kernel = registry.find("", "LayerNormalization", 20)
    ones, zeros = np.ones(512, np.float32), np.zeros(512, np.float32)

    (y,) = call(np, kernel, [x, ones, zeros], [Spec(x.shape, x.dtype)], {})

    exact = x.astype(np.float64)
    exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, exact, atol=2e-3)


@pytest.mark.extra
def test_gradients_flow_through_the_statistics_of_layer_normalisation():
    x, scale, bias = normal(3, 8), normal(8), normal(8)
    heads = [normal(3, 8, seed=1), normal(3, 1, seed=2), normal(3, 1, seed=3)]

    found = gradients(
        "LayerNormalization", x, scale, bias, outputs=3, dtype=np.float32, heads=heads
    )

    torch = pytest.importorskip("torch")
    values = [torch.tensor(v, requires_grad=True) for v in (x, scale, bias)]
    mean = values[0].mean(1, keepdim=True)
    rstd = (values[0].var(1, correction=0, keepdim=True) + 1e-5).rsqrt()
    y = (values[0] - mean) * rstd * values[1] + values[2]
    loss = sum((v * torch.tensor(h)).sum() for v, h in zip((y, mean, rstd), heads, strict=True))
    for mine, theirs in zip(found, torch.autograd.grad(loss, values), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.extra
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize(
    ("stride", "pad", "dilation"), [(1, 1, 1), (2, 1, 1), (3, 0, 2), (2, 2, 2)]
)
def test_convolutions_agree_with_pytorch(group, stride, pad, dilation):
    torch = pytest.importorskip("torch")
    x, w, b = normal(3, 4, 11, 12), normal(8, 4 // group, 3, 3), normal(8)
    given = {"stride": stride, "padding": pad, "dilation": dilation, "groups": group}
    values = [torch.tensor(v, requires_grad=True) for v in (x, w, b)]
    y = torch.nn.functional.conv2d(*values, **given)
    head = normal(*y.shape, seed=1)

    found = gradients(
        "Conv", x, w, b, heads=[head], group=group, strides=[stride] * 2, pads=[pad] * 4,
        dilations=[dilation] * 2,
    )  # fmt: skip

    theirs = torch.autograd.grad((y * torch.tensor(head)).sum(), values)
    for mine, other in zip(found, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-10)


@pytest.mark.extra
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(("stride", "pad", "extra"), [(1, 0, 0), (2, 1, 1), (3, 1, 2)])
def test_transposed_convolutions_agree_with_pytorch(group, stride, pad, extra):
    torch = pytest.importorskip("torch")
    x, w, b = normal(3, 4, 5, 6), normal(4, 6 // group, 3, 3), normal(6)
    given = {"stride": stride, "padding": pad, "output_padding": extra, "groups": group}
    values = [torch.tensor(v, requires_grad=True) for v in (x, w, b)]
    y = torch.nn.functional.conv_transpose2d(*values, **given)
    head = normal(*y.shape, seed=1)

    found = gradients(
        "ConvTranspose", x, w, b, heads=[head], group=group, strides=[stride] * 2,
        pads=[pad] * 4, output_padding=[extra] * 2,
    )  # fmt: skip

    theirs = torch.autograd.grad((y * torch.tensor(head)).sum(), values)
    for mine, other in zip(found, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-10)


@pytest.mark.extra
@pytest.mark.parametrize("shape", [(2, 6, 700), (3, 6, 5, 5), (40, 6, 1), (2, 6, 300, 500)])
def test_large_blocks_of_normalisation_agree_with_pytorch(shape):
    torch = pytest.importorskip("torch")
    x, w, b = normal(*shape), normal(6), normal(6)
    values = [torch.tensor(v, requires_grad=True) for v in (x, w, b)]
    head = normal(*shape, seed=1)
    for op, y, given in (
        ("GroupNormalization", torch.nn.functional.group_norm(values[0], 2, *values[1:]),
         {"num_groups": 2, "opset": 21}),
        ("BatchNormalization", torch.nn.functional.batch_norm(
            values[0], None, None, *values[1:], training=True),
         {"training_mode": 1, "outputs": 3}),
    ):  # fmt: skip
        zero = np.zeros(6)
        rest = [zero, zero + 1] if "Batch" in op else []
        heads = [head, zero, zero] if rest else [head]
        found = gradients(op, x, w, b, *rest, heads=heads, **given)[:3]

        theirs = torch.autograd.grad((y * torch.tensor(head)).sum(), values)
        for mine, other in zip(found, theirs, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-7, atol=1e-9)


HALVES = [
    ("Conv", ((2, 4, 7, 8), (6, 2, 3, 3), (6,)), {"group": 2, "pads": [1] * 4}),
    ("Conv", ((2, 4, 7, 8), (4, 1, 3, 3), (4,)), {"group": 4, "strides": [2, 2]}),
    ("Conv", ((2, 4, 7, 8), (6, 4, 1, 1), (6,)), {}),
    ("ConvTranspose", ((2, 4, 5, 6), (4, 3, 3, 3), (3,)), {"strides": [2, 2]}),
    ("AveragePool", ((2, 4, 7, 8),), {"kernel_shape": [3, 3], "strides": [2, 2]}),
    ("MaxPool", ((2, 4, 7, 8),), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("GlobalAveragePool", ((2, 4, 7, 8),), {}),
    ("LpPool", ((2, 4, 7, 8),), {"kernel_shape": [3, 3]}),
    ("LayerNormalization", ((5, 16), (16,), (16,)), {}),
    ("InstanceNormalization", ((2, 4, 7, 8), (4,), (4,)), {}),
    ("BatchNormalization", ((2, 4, 7, 8), (4,), (4,), (4,), (4,)), {}),
    ("LpNormalization", ((2, 4, 7),), {}),
    ("LRN", ((2, 4, 7, 8),), {"size": 3}),
]


@pytest.mark.parametrize(("op", "shapes", "given"), HALVES)
def test_float16_is_summed_in_float32(op, shapes, given):
    arrays = [(np.abs(normal(*s, seed=i)) + 0.2).astype(np.float16) for i, s in enumerate(shapes)]

    half = gradients(op, *arrays, dtype=np.float16, **given)
    full = gradients(op, *arrays, dtype=np.float32, **given)

    for mine, exact in zip(half, full, strict=True):
        assert mine.dtype == np.float16
        scale = np.abs(exact).max()
        np.testing.assert_allclose(mine, exact, rtol=4e-3, atol=4e-3 * scale)


LARGE = [
    ((3, 8, 120, 130), 8, 1, 1),
    ((3, 8, 121, 130), 6, 1, 2),
    ((9, 64, 9, 9), 64, 1, 1),
    ((2, 12, 40, 44), 12, 12, 1),
    ((2, 300, 12, 13), 300, 300, 1),
    ((2, 300, 6, 5), 300, 300, 1),
    ((2, 70, 31, 30), 70, 70, 2),
]


@pytest.mark.extra
@pytest.mark.parametrize(("shape", "channels", "group", "stride"), LARGE)
def test_every_layout_of_blocks_agrees_with_pytorch(shape, channels, group, stride):
    torch = pytest.importorskip("torch")
    x, w, b = normal(*shape), normal(channels, shape[1] // group, 3, 3), normal(channels)
    values = [torch.tensor(v) for v in (x, w, b)]
    y = torch.nn.functional.conv2d(*values, stride=stride, padding=1, groups=group)
    dy = normal(*y.shape, seed=1)
    theirs = torch.ops.aten.convolution_backward(
        torch.tensor(dy), *values[:2], [channels], [stride] * 2, [1, 1], [1, 1], False, [0, 0],
        group, [True, True, False],
    )  # fmt: skip
    given = {"group": group, "strides": [stride] * 2, "pads": [1] * 4, "dilations": [1, 1]}

    def run(domain, op, inputs, out, **more):
        kernel = registry.find(domain, op, 20)
        return call(np, kernel, inputs, [Spec(out, x.dtype)], given | more)[0]

    mine = run("", "Conv", [x, w, b], dy.shape)
    dx = run("ai.gradtool", "ConvGradInput", [dy, w, np.array(x.shape)], x.shape)
    dw = run("ai.gradtool", "ConvGradWeight", [x, dy], w.shape, kernel_shape=[3, 3])

    np.testing.assert_allclose(mine, y, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(dx, theirs[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(dw, theirs[1], rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("kernels", ["numpy", pytest.param("native", marks=needs_library)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 1, 2), (1, 1, 3), ""),
        ((1, 2, 3), (4, 2, 5), "<strides = [2]>"),
        ((2, 3, 1), (3, 1, 2), "<group = 3>"),
        ((2, 4, 1, 5), (6, 2, 2, 3), "<group = 2>"),
        ((2, 3, 2, 1, 2), (6, 1, 1, 2, 1), "<group = 3>"),
        ((0, 4, 5, 5), (6, 4, 2, 3), "<pads = [1, 1, 1, 1]>"),
    ],
)
def test_a_convolution_without_windows_is_empty_and_its_gradients_are_zero(
    x, w, attributes, dtype, kernels
):
    kind = {np.float16: "float16", np.float32: "float", np.float64: "double"}[dtype]
    sizes, open_ = ",".join(map(str, x)), ",".join("abcde"[: len(x)])
    model = parse(
        f"g ({kind}[{sizes}] x, {kind}[{','.join(map(str, w))}] w) => ({kind}[{open_}] y)"
        f" {{ y = Conv {attributes} (x, w) }}"
    )
    training = gt.grad(model, loss="sum", wrt=["x", "w"])
    found = gt.run(training, {"x": np.ones(x, dtype), "w": np.ones(w, dtype)}, kernels=kernels)

    assert found.loss == 0
    assert not found.gradients["x"].any()
    assert not found.gradients["w"].any()

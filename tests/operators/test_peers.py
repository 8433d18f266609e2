"""What onnxruntime-training 1.19.2 differentiates wrongly without a word, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, floats, positive
from checkers import differentiated, evaluate
from graphs import gradients, parse

import gradtool as gt

pytestmark = pytest.mark.extra

torch = pytest.importorskip("torch")
F = torch.nn.functional


def agree(case: Case, function) -> None:
    """The gradients of Σ y·c by all float inputs are those of PyTorch's `function`."""
    model, feeds, names = differentiated(case)
    found = evaluate(model, feeds)
    slots = [n for n in feeds if n.startswith("x")]
    given = [torch.tensor(feeds[n], requires_grad=True) for n in slots]
    y = function(*given)
    np.testing.assert_allclose(found["y0"], y.detach().numpy(), rtol=1e-10, atol=1e-12)
    y.backward(torch.tensor(feeds["c_y0"]))
    for name, value in zip(names, given, strict=True):
        np.testing.assert_allclose(found[name], value.grad.numpy(), rtol=1e-9, atol=1e-11)


def same(x, kernel, strides, fill=0.0, *, upper=True):
    """`x` with the padding of SAME_UPPER or SAME_LOWER."""
    pads: list[int] = []
    for size, k, s in reversed(list(zip(x.shape[2:], kernel, strides, strict=True))):
        total = max((-(-size // s) - 1) * s + k - size, 0)
        less, more = total // 2, total - total // 2
        pads += [less, more] if upper else [more, less]
    return F.pad(x, pads, value=fill)


def test_batch_normalization_in_inference_takes_its_statistics_as_constants():
    inputs = (floats(4, 3, 5), floats(3), floats(3), floats(3), positive(3))

    def function(x, scale, bias, mean, var):
        return F.batch_norm(x, mean.detach(), var.detach(), scale, bias, training=False)

    model = parse("g (float[4, 3, 5] x, float[3] s, float[3] b, float[3] m, float[3] v) => (y) "
                  "{ y = BatchNormalization <training_mode = 0> (x, s, b, m, v) }")  # fmt: skip
    training = gt.grad(model, loss="sum:y", wrt=["x", "s", "b"])
    rng = np.random.default_rng(0)
    drawn = [i.draw(rng).astype(np.float32) for i in inputs]
    found = gradients(training, **dict(zip("xsbmv", drawn, strict=True)))
    given = [torch.tensor(a, requires_grad=True) for a in drawn]
    function(*given).sum().backward()

    for name, value in zip("xsb", given, strict=False):
        np.testing.assert_allclose(found[name], value.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_conv_same_upper():
    agree(
        Case("Conv", (floats(2, 3, 6, 7), floats(4, 3, 2, 4), floats(4)),
             {"auto_pad": "SAME_UPPER"}),
        lambda x, w, b: F.conv2d(same(x, (2, 4), (1, 1)), w, b),
    )  # fmt: skip


def test_conv_same_lower_with_stride_two():
    agree(
        Case("Conv", (floats(2, 3, 6, 7), floats(4, 3, 3, 3)),
             {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
        lambda x, w: F.conv2d(same(x, (3, 3), (2, 2), upper=False), w, stride=2),
    )  # fmt: skip


def test_average_pool_same_upper():
    def function(x):
        total = F.avg_pool2d(same(x, (2, 4), (2, 1)), (2, 4), (2, 1))
        count = F.avg_pool2d(same(torch.ones_like(x), (2, 4), (2, 1)), (2, 4), (2, 1))
        return total / count

    attributes = {"auto_pad": "SAME_UPPER", "kernel_shape": [2, 4], "strides": [2, 1]}
    agree(Case("AveragePool", (floats(2, 3, 7, 6),), attributes), function)


def test_average_pool_of_overlapping_windows_in_three_dimensions():
    agree(
        Case("AveragePool", (floats(2, 3, 5, 6, 7),),
             {"kernel_shape": [3, 2, 3], "strides": [1, 1, 2]}),
        lambda x: F.avg_pool3d(x, (3, 2, 3), (1, 1, 2)),
    )  # fmt: skip


INDICES = np.array([[0, 2, 0], [2, 2, 1]])


@pytest.mark.parametrize(("how", "name"), [("add", "sum"), ("mul", "prod")])
def test_scatter_elements(how, name):
    """Added and multiplied, with several updates for one element."""
    agree(
        Case("ScatterElements", (floats(3, 3), INDICES, floats(2, 3)),
             {"axis": 0, "reduction": how}),
        lambda x, u: x.scatter_reduce(0, torch.tensor(INDICES), u, name),
    )  # fmt: skip


def test_dropout_in_inference_is_the_identity_with_a_mask_output():
    agree(Case("Dropout", (floats(3, 4),), {}, outputs=2), lambda x: F.dropout(x, training=False))


def test_gelu_by_tanh():
    agree(
        Case("Gelu", (floats(3, 4),), {"approximate": "tanh"}),
        lambda x: F.gelu(x, approximate="tanh"),
    )

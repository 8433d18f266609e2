"""PyTorch's own counter, which knows products alone, and the counts that torchvision publishes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from costs.counting import count, products
from shared import FULL

import gradtool as gt
from gradtool.ops import costs
from gradtool.program.flatten import flatten

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

# Billions of multiply-adds of one image, as torchvision's weights state them (`_ops`).
PUBLISHED = {"densenet121": 2.834, "resnet18": 1.814, "resnet50": 4.089, "vgg16": 15.47}


def torch_count(function) -> int:
    counter = pytest.importorskip("torch.utils.flop_counter", reason="needs torch")
    with counter.FlopCounterMode(display=False) as mode:
        function()
    return mode.get_total_flops()


@pytest.mark.extra
@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_a_training_step_multiplies_as_much_as_that_of_torch(name):
    torch = pytest.importorskip("torch")
    from torch_eager import Eager

    path = ROOT / "samples" / f"{name}.onnx"
    with np.load(path.with_suffix(".npz")) as inputs:
        arrays = {name: array[:2] for name, array in inputs.items()}
    model = gt.load(path, batch=len(arrays["labels"]))
    training = gt.grad(model, loss="ce:logits", fuse_attention=False)
    eager = Eager(onnx.load(path))
    tensors = eager.tensors(arrays)
    labels = tensors.pop("labels")
    for weight in training.gradients:
        eager.values[weight].requires_grad_(True)

    def step():
        logits = eager(tensors)["logits"]
        classes = logits.reshape(-1, logits.shape[-1])
        torch.nn.functional.cross_entropy(classes, labels.flatten()).backward()

    assert products(gt.plan(training).program) == torch_count(step)


@pytest.mark.extra
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_count_what_torch_counts_in_both_directions(group, stride):
    """But torch counts the weight gradient as if there were no groups."""
    torch = pytest.importorskip("torch")
    x = torch.randn(2, 6, 9, 10, requires_grad=True)
    w = torch.randn(3, 6 // group, 3, 2, requires_grad=True)
    made = torch.nn.functional.conv2d(x, w, stride=stride, groups=group)
    shapes = tuple(x.shape), tuple(w.shape), tuple(made.shape)
    forward = torch_count(lambda: torch.nn.functional.conv2d(x, w, stride=stride, groups=group))
    backward = torch_count(lambda: made.sum().backward())

    found = count("Conv", *shapes[:2], out=[shapes[2]], group=group)
    assert found == forward
    found += count("ai.gradtool::ConvGradInput", shapes[2], shapes[1], None, out=[shapes[0]])
    found += count("ai.gradtool::ConvGradWeight", shapes[0], shapes[2], out=[shapes[1]])
    assert found == forward + backward - (group - 1) * forward


@pytest.mark.extra
def test_a_transposed_convolution_counts_what_torch_counts():
    torch = pytest.importorskip("torch")
    x, w = torch.randn(2, 4, 5, 5), torch.randn(4, 3, 3, 3)
    made = tuple(torch.nn.functional.conv_transpose2d(x, w).shape)
    expected = torch_count(lambda: torch.nn.functional.conv_transpose2d(x, w))

    assert count("ConvTranspose", tuple(x.shape), tuple(w.shape), out=[made]) == expected


@pytest.mark.extra
def test_attention_counts_the_products_of_torch_and_its_softmax():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.randn(2, 4, n, 8, requires_grad=True) for n in (3, 5, 5))

    def attend():
        return torch.softmax(q @ k.mT / 8**0.5, -1) @ v

    forward = torch_count(attend)
    made = attend()
    backward = torch_count(lambda: made.sum().backward())
    shapes = [tuple(a.shape) for a in (q, k, v)]
    scores, elements = 2 * 4 * 3 * 5, 2 * 4 * 3 * 8

    found = count("Attention", *shapes, out=[shapes[0]], opset=23)
    assert found == forward + 4 * scores + 2 * elements
    found = count("ai.gradtool::FusedAttentionGrad", *shapes, None, shapes[0], out=shapes)
    again = forward // 2  # the scores, which torch keeps
    assert found == backward + again + 9 * scores + 2 * elements


@pytest.mark.extra
def test_lstm_counts_the_products_of_torch_and_its_cells():
    torch = pytest.importorskip("torch")
    times, batch, inputs, hidden = 5, 3, 4, 2
    cell = torch.nn.LSTMCell(inputs, hidden)
    x = torch.randn(times, batch, inputs)

    def run():
        state = None
        for now in x:
            state = cell(now, state)

    expected = torch_count(run)
    elements = times * batch * hidden
    given = [(times, batch, inputs), (1, 4 * hidden, inputs), (1, 4 * hidden, hidden)]
    found = count("LSTM", *given, out=[(times, 1, batch, hidden)], hidden_size=hidden)
    assert found == expected + elements * (4 + 14 + 4)  # the sum, activations, the cell


@pytest.mark.shared
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_forward_pass_multiplies_as_often_as_torchvision_states(name):
    program = flatten(gt.load(FULL / name / "model_dynbatch.onnx", batch=1))

    assert products(program) / 2e9 == pytest.approx(PUBLISHED[name], abs=5e-4)
    assert products(program) < costs.total(program) < 1.05 * products(program)

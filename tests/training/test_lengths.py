"""Sizes are rounded up where a mask or ignored labels leave gradients as they are."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.training.callbacks import Watcher
from gradtool.training.lengths import Lengths

WIDTH, CLASSES, BATCH = 8, 5, 4


def graph(nodes, inputs, output, *, weights):
    """A model of nodes as `Op name = a, b; attributes`, on inputs of open length."""
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    made = helper.make_graph(
        nodes, "lengths", [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, output)], tensors,
    )  # fmt: skip
    return gt.load(helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)]))


def drawn(*shape):
    return (np.random.default_rng(shape).standard_normal(shape) * 0.3).astype(np.float32)


def attention(*, masked):
    """Scores of each token by attention to all, but for those that a mask leaves out."""
    node = helper.make_node
    mask = [
        node("Unsqueeze", ["mask", "axis"], ["across"]),
        node("Sub", ["across", "one"], ["less"]),
        node("Mul", ["less", "many"], ["hidden"]),
        node("Add", ["raw", "hidden"], ["logits"]),
    ]
    nodes = [
        node("Gather", ["table", "tokens"], ["x"]),
        node("Transpose", ["x"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["x", "turned"], ["raw"]),
        *(mask if masked else [node("Identity", ["raw"], ["logits"])]),
        node("Softmax", ["logits"], ["weights"], axis=-1),
        node("MatMul", ["weights", "x"], ["mixed"]),
        node("MatMul", ["mixed", "head"], ["scores"]),
    ]
    inputs = [("tokens", TensorProto.INT64, ["batch", "length"])]
    inputs += [("mask", TensorProto.FLOAT, ["batch", "length"])] if masked else []
    weights = {"table": drawn(11, WIDTH), "head": np.zeros((WIDTH, CLASSES), np.float32)}
    if masked:
        weights |= {"axis": np.array([1]), "one": np.float32(1), "many": np.float32(1e9)}
    return graph(nodes, inputs, ["batch", "length", CLASSES], weights=weights)


def recurrent():
    """Scores of each time of an LSTM, on as many as each sequence has."""
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "tokens"], ["x"]),
        node("LSTM", ["x", "w", "r", "", "lens"], ["y"], hidden_size=WIDTH),
        node("Squeeze", ["y", "axis"], ["states"]),
        node("MatMul", ["states", "head"], ["scores"]),
    ]
    inputs = [("tokens", TensorProto.INT64, ["length", "batch"])]
    inputs += [("lens", TensorProto.INT32, ["batch"])]
    weights = {
        "table": drawn(11, WIDTH), "w": drawn(1, 4 * WIDTH, WIDTH),
        "r": drawn(1, 4 * WIDTH, WIDTH), "axis": np.array([1]), "head": drawn(WIDTH, CLASSES),
    }  # fmt: skip
    return graph(nodes, inputs, ["length", "batch", CLASSES], weights=weights)


def batches(model, lengths, labels="labels"):
    """A function that yields a batch of each length."""
    inputs = {v.name: v for v in model.graph.inputs}

    def epoch():
        draw = np.random.default_rng(2)
        for length in lengths:
            sizes = {"batch": BATCH, "length": length}
            shape = tuple(sizes[d.value] for d in inputs["tokens"].shape)
            made = {"tokens": draw.integers(0, 11, shape), labels: draw.integers(0, CLASSES, shape)}
            if "mask" in inputs:
                made["mask"] = np.ones(shape, np.float32)
            if "lens" in inputs:
                made["lens"] = np.full(BATCH, length, np.int32)
            yield made

    return epoch


class Lines(Watcher):
    def __init__(self):
        self.lines = []

    def said(self, line):
        self.lines.append(line)


def trained(model, stream, **options):
    """The weights after an epoch, the sizes that were planned, and what was said."""
    heard = Lines()
    with gt.Trainer(model, batch=BATCH, lr=0.05, optimizer="sgd", **options) as trainer:
        trainer.fit(batches(model, stream), watcher=heard)
        sizes = sorted(plan.program.dims["length"] for plan in trainer.session.plans)
        said = [line for line in heard.lines if line.startswith("--lengths")]
        return trainer.session.values(), sizes, said


STREAM = [17, 18, 19, 25, 26, 17]


@pytest.mark.parametrize("asked", ["auto", "20,32"])
@pytest.mark.parametrize("make", [lambda: attention(masked=True), recurrent])
def test_padding_leaves_the_weights_as_they_are(make, asked):
    exact, sizes, _ = trained(make(), STREAM)
    padded, fewer, said = trained(make(), STREAM, lengths=asked)

    assert sizes == [17, 18, 19, 25, 26]
    assert fewer == ([18, 20, 26] if asked == "auto" else [20, 32])
    assert "'length' is rounded up" in said[0]
    assert "'labels' with -100" in said[0]
    for name, value in exact.items():
        np.testing.assert_allclose(padded[name], value, rtol=1e-4, atol=1e-6)


def test_what_no_mask_covers_stays_as_it_is():
    exact, sizes, _ = trained(attention(masked=False), STREAM)
    again, same, said = trained(attention(masked=False), STREAM, lengths="auto")

    assert same == sizes
    assert "'length' stays as it is" in said[0]
    for name, value in exact.items():
        np.testing.assert_array_equal(again[name], value)


def test_sizes_are_rounded_to_eight_a_doubling_or_to_those_that_are_chosen():
    auto, chosen = Lengths({}, {}), Lengths({}, {}, (8, 16))
    rounded = {auto.rounded(size) for size in range(1, 257)}

    assert sorted(rounded) == [
        *range(1, 17), *range(18, 33, 2), *range(36, 65, 4), *range(72, 129, 8),
        *range(144, 257, 16),
    ]  # fmt: skip
    assert [chosen.rounded(size) for size in (1, 8, 9, 17)] == [8, 8, 16, 17]


@pytest.mark.parametrize("asked", ["8,x", "0", "", "-4,8"])
def test_other_lengths_are_one_line(asked):
    with pytest.raises(UsageError, match="auto, or sizes as in 8,16,32"):
        trained(recurrent(), [5], lengths=asked)


def test_a_model_without_another_open_size_says_so():
    model = gt.load("samples/cnn.onnx")
    heard = Lines()
    with np.load("samples/cnn.npz") as data, gt.Trainer(model, batch=4, lengths="auto") as trainer:
        trainer.fit({name: data[name] for name in data.files}, watcher=heard)

    assert "--lengths: the model leaves no size open but the examples" in heard.lines

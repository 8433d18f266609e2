"""A file that was exported at batch 1 trains as one exported at another batch."""

import numpy as np
import onnx
import pytest
from conftest import sampled
from onnx import TensorProto, helper, numpy_helper

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.training.callbacks import Watcher
from gradtool.workloads.opening import load

BATCH = 5
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Export:
    """A graph as an exporter writes it that was shown so many examples."""

    def __init__(self, batch):
        self.batch, self.rng = batch, np.random.default_rng(3)
        self.nodes, self.held, self.inputs = [], [], []

    def input(self, name, *shape, kind=FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def weight(self, *shape):
        return self.const(0.4 * self.rng.standard_normal(shape).astype(np.float32), "w")

    def const(self, array, prefix="c"):
        name = f"{prefix}{len(self.held)}"
        self.held.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def __call__(self, op, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, list(inputs), names, name=f"{op}_{len(self.nodes)}",
                                **attributes)  # fmt: skip
        self.nodes.append(node)
        return names[0] if outputs == 1 else names

    def reshape(self, x, *sizes):
        return self("Reshape", x, self.const(np.array(sizes, np.int64)))

    def model(self, y):
        out = helper.make_tensor_value_info(y, FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", self.inputs, [out], self.held)
        opsets = [helper.make_opsetid("", 20)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return onnx.shape_inference.infer_shapes(made)  # with the sizes of the example


def mlp(e):
    x = e.reshape(e.input("x", e.batch, 2, 3), e.batch, 6)
    h = e("Relu", e("Gemm", x, e.weight(6, 4), e.weight(4)))
    return e("Gemm", h, e.weight(4, 3))


def flattened(e):
    x = e("Relu", e("Conv", e.input("x", e.batch, 2, 6, 6), e.weight(3, 2, 3, 3)))
    x = e.reshape(e("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), e.batch, -1)
    return e("MatMul", x, e.weight(12, 3))


def normed(e):
    x = e("Conv", e.input("x", e.batch, 2, 4, 4), e.weight(3, 2, 3, 3))
    mean, var = e.const(np.zeros(3, np.float32)), e.const(np.ones(3, np.float32))
    x = e("BatchNormalization", x, e.weight(3), e.weight(3), mean, var)
    return e("Flatten", e("GlobalAveragePool", x))


def attention(e):
    n, t, h, d = e.batch, 4, 2, 3
    x = e.input("x", n, t, h * d)
    q, k, v = (e.reshape(e("MatMul", x, e.weight(h * d, h * d)), n, t, h, d) for _ in range(3))
    q, v = (e("Transpose", each, perm=[0, 2, 1, 3]) for each in (q, v))
    k = e("Transpose", k, perm=[0, 2, 3, 1])
    bias = e("Expand", e.const(np.triu(np.full((t, t), -9, np.float32), 1)),
             e.const(np.array([n, h, t, t])))  # fmt: skip
    scores = e("Softmax", e("Add", e("MatMul", q, k), bias), axis=-1)
    y = e("Transpose", e("MatMul", scores, v), perm=[0, 2, 1, 3])
    y = e.reshape(e.reshape(y, n, t, h * d), n * t, h * d)
    y = e.reshape(e("MatMul", y, e.weight(h * d, 2)), n, t, 2)
    return e("ReduceMean", y, e.const(np.array([1])), keepdims=0)


def folded_heads(e):
    """Heads beside examples on one axis, as `torch.bmm` has them."""
    n, t, h, d = e.batch, 4, 2, 3
    x = e.reshape(e.input("x", n, t, h * d), n, t, h, d)
    x = e.reshape(e("Transpose", x, perm=[0, 2, 1, 3]), n * h, t, d)
    s = e("Softmax", e("MatMul", x, e("Transpose", x, perm=[0, 2, 1])), axis=-1)
    y = e.reshape(e("MatMul", s, e("MatMul", x, e.weight(d, d))), n, h, t, d)
    y = e.reshape(e("Transpose", y, perm=[0, 2, 1, 3]), n, t * h * d)
    return e("MatMul", y, e.weight(t * h * d, 3))


def class_token(e):
    n, t, d = e.batch, 3, 4
    token = e("Expand", e.weight(1, 1, d), e.const(np.array([n, 1, d])))
    x = e("Concat", token, e.input("x", n, t, d), axis=1)
    x = e("Add", x, e("Expand", e.weight(1, t + 1, d), e.const(np.array([n, t + 1, d]))))
    x = e("LayerNormalization", x, e.weight(d), e.weight(d))
    first = e("Gather", x, e.const(np.int64(0)), axis=1)
    return e("MatMul", first, e.weight(d, 2))


def recurrent(op, gates):
    def build(e):
        n, t, i, h = e.batch, 3, 2, 4
        x = e("Transpose", e.input("x", n, t, i), perm=[1, 0, 2])
        state = e.const(np.zeros((1, n, h), np.float32))
        more = [state] if op == "LSTM" else []
        w, r, b = e.weight(1, gates * h, i), e.weight(1, gates * h, h), e.weight(1, 2 * gates * h)
        y, *_ = e(op, x, w, r, b, "", state, *more, outputs=2, hidden_size=h)
        y = e("Transpose", e("Squeeze", y, e.const(np.array([1]))), perm=[1, 0, 2])
        return e.reshape(y, n, t * h)

    build.__name__ = op.lower()
    return build


def given_state(e):
    """The first state is an input, whose leading axis is that of layers."""
    n, t, i, h = e.batch, 3, 2, 4
    x = e("Transpose", e.input("x", n, t, i), perm=[1, 0, 2])
    state = e.input("h0", 1, n, h)
    _, last = e("GRU", x, e.weight(1, 3 * h, i), e.weight(1, 3 * h, h), "", "", state, outputs=2,
                hidden_size=h)  # fmt: skip
    return e("Squeeze", last, e.const(np.array([0])))


def resized(e):
    n = e.batch
    x = e("Conv", e.input("x", n, 2, 3, 3), e.weight(2, 2, 1, 1))
    x = e("Resize", x, "", "", e.const(np.array([n, 2, 6, 6])), mode="linear")
    return e.reshape(e("Tanh", x), n, 72)


def turns(e):
    """A Scan whose first state is a constant."""
    n, t, h = e.batch, 3, 2
    x = e("Transpose", e.input("x", n, t, h), perm=[1, 0, 2])
    step = helper.make_graph(
        [helper.make_node("Add", ["s", "v"], ["a"]), helper.make_node("Tanh", ["a"], ["b"]),
         helper.make_node("Identity", ["b"], ["o"])],
        "turn",
        [helper.make_tensor_value_info(name, FLOAT, None) for name in ("s", "v")],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in ("b", "o")],
    )  # fmt: skip
    first = e.const(np.zeros((n, h), np.float32))
    last, _ = e("Scan", first, x, outputs=2, body=step, num_scan_inputs=1)
    return e("MatMul", last, e.weight(h, 2))


TORCH = [(kind, dynamo) for dynamo in (False, True)
         for kind in ("encoder", "lstm", "gru", "conv", "attention", "token")]  # fmt: skip
KINDS = [mlp, flattened, normed, attention, folded_heads, class_token, recurrent("LSTM", 4),
         recurrent("GRU", 3), recurrent("RNN", 1), given_state, resized, turns]  # fmt: skip


def counted(e):
    """The file has its loss, of labels that may be ignored."""
    x = e.reshape(e.input("x", e.batch, 2, 3), e.batch, 6)
    y = e("MatMul", x, e.weight(6, 3))
    return e("SoftmaxCrossEntropyLoss", y, e.input("t", e.batch, kind=INT64), ignore_index=1)


def test_a_loss_of_the_file_is_of_all_examples():
    rng = np.random.default_rng(0)
    arrays = {"x": rng.standard_normal((BATCH, 2, 3)).astype(np.float32), "t": np.arange(BATCH) % 3}
    expected, found = (
        gt.run(gt.grad(model), arrays) for model in (load(export(counted, BATCH)), one(counted))
    )

    assert found.loss == pytest.approx(expected.loss)
    require_same(found.gradients, expected.gradients)


def export(build, batch):
    made = Export(batch)
    return made.model(build(made))


def one(build):
    return load(export(build, 1), batch=BATCH)


def gradients(model, arrays):
    return gt.run(gt.grad(model, loss="mse"), arrays).gradients


@pytest.mark.parametrize("build", KINDS, ids=lambda build: build.__name__)
def test_gradients_are_those_of_a_file_of_that_batch(build):
    theirs, ours = load(export(build, BATCH)), one(build)
    rng = np.random.default_rng(0)
    shapes = {v.name: v.shape.numpy() for v in theirs.graph.inputs if v.const_value is None}
    arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    arrays["labels"] = rng.standard_normal(theirs.graph.outputs[0].shape.numpy()).astype(np.float32)

    assert {v.name: v.shape.numpy() for v in ours.graph.inputs if v.const_value is None} == shapes
    expected, found = gradients(theirs, arrays), gradients(ours, arrays)
    assert found.keys() == expected.keys()
    require_same(found, expected)
    assert all(np.any(array) for array in found.values())


def require_same(found, expected):
    """Gradients are equal; that of one state or token for all examples is the sum of theirs."""
    for name in found.keys() & expected.keys():
        mine, theirs = found[name], expected[name]
        shared = [a for a, sizes in enumerate(zip(theirs.shape, mine.shape, strict=True))
                  if sizes == (BATCH, 1)]  # fmt: skip
        theirs = theirs.sum(tuple(shared), keepdims=True) if shared else theirs
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "build", sampled([k for k in KINDS if k is not given_state], 6, by=lambda _: None)
)
def test_a_training_opens_what_it_is_given(build):
    rng = np.random.default_rng(0)
    made = [load(export(build, batch)) for batch in (BATCH, 1)]
    inputs = [v for v in made[0].graph.inputs if v.const_value is None]
    y = made[0].graph.outputs[0].shape.numpy()
    data = {v.name: rng.standard_normal((10, *v.shape.numpy()[1:])) for v in inputs}
    data["labels"] = rng.standard_normal((10, *y[1:]))
    data = {name: array.astype(np.float32) for name, array in data.items()}
    losses, said = [], []

    class Heard(Watcher):
        def said(self, line):
            said.append(line)

    for model in made:
        with gt.Trainer(model, loss="mse", wrt=["w*"], batch=BATCH, steps=4) as trainer:
            losses.append(trainer.fit(data, watcher=Heard()).losses)

    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert f"the file is fixed at batch 1: opened to {BATCH}" in said


def picked(e):
    return e(
        "MatMul", e("Gather", e.input("x", e.batch, 2, 3), e.const(np.int64(0))), e.weight(3, 2)
    )


def squeezed(e):
    return e("MatMul", e("Squeeze", e.input("x", e.batch, 2, 3), e.const(np.array([0]))),
             e.weight(3, 2))  # fmt: skip


def sliced(e):
    x = e("Slice", e.input("x", e.batch, 6), *(e.const(np.array([n])) for n in (0, 1, 0)))
    return e("MatMul", x, e.weight(6, 2))


def softmaxed(e):
    return e("MatMul", e("Softmax", e.input("x", e.batch, 6), axis=0), e.weight(6, 2))


def normed_positions(e):
    """A norm whose first axis is that of positions."""
    x = e("Transpose", e.input("x", e.batch, 4, 3), perm=[1, 0, 2])
    one = e.const(np.ones(1, np.float32))
    return e("BatchNormalization", x, one, one, one, one)


def merged(e):
    """Examples and positions are one axis that a product sums over."""
    return e("MatMul", e.weight(2, 4), e.reshape(e.input("x", e.batch, 4, 3), 4, 3))


@pytest.mark.parametrize(
    ("build", "named"),
    [(normed_positions, "BatchNormalization"), (picked, "Gather"), (squeezed, "Squeeze"),
     (sliced, "Slice"), (softmaxed, "Softmax"), (merged, "MatMul")],
)  # fmt: skip
def test_what_keeps_a_batch_at_one_is_named(build, named):
    with pytest.raises(UsageError, match=f"'x' is fixed at batch 1 in the model, by .*{named}"):
        one(build)


@pytest.mark.extra
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dynamo"), TORCH)
@pytest.mark.filterwarnings("ignore")
def test_files_of_torch_are_opened(kind, dynamo, tmp_path):
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Last(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.head = inner, nn.Linear(8, 2)

        def forward(self, x):
            y, _ = self.inner(x)
            return self.head(y[:, -1])

    class Token(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.place = (nn.Parameter(torch.randn(1, n, 8)) for n in (1, 4))
            self.inner = nn.MultiheadAttention(8, 2, batch_first=True)
            self.head = nn.Linear(8, 2)

        def forward(self, x):
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
            return self.head(self.inner(x, x, x, need_weights=False)[0][:, 0])

    class Conv(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.head = (
                nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Linear(16, 2))  # fmt: skip

        def forward(self, x):
            x = nn.functional.interpolate(self.norm(self.conv(x)), size=(4, 4)).relu()
            return self.head(nn.functional.max_pool2d(x, 2).view(x.size(0), -1))

    torch.manual_seed(0)
    made = {
        "encoder": lambda: nn.Sequential(nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, batch_first=True), nn.Flatten(), nn.Linear(24, 2)),
        "lstm": lambda: Last(nn.LSTM(8, 8, batch_first=True)),
        "gru": lambda: Last(nn.GRU(8, 8, batch_first=True, bidirectional=False)),
        "conv": Conv, "token": Token,
        "attention": lambda: nn.Sequential(nn.Linear(8, 8), nn.TransformerEncoderLayer(
            8, 4, 8, dropout=0.0, batch_first=True, norm_first=True), nn.Flatten(),
            nn.Linear(24, 2)),
    }[kind]()  # fmt: skip
    shape = (2, 6, 6) if kind == "conv" else (3, 8)
    x = torch.randn(BATCH, *shape)
    for batch in (1, BATCH):
        torch.onnx.export(made.train(), (x[:batch],), tmp_path / f"{batch}.onnx", dynamo=dynamo,
                          input_names=["x"], opset_version=18, verbose=False,
                          **({} if dynamo else {"do_constant_folding": False}))  # fmt: skip
    arrays = {"x": x.numpy(), "labels": np.ones((BATCH, 2), np.float32)}
    expected, found = (
        gradients(model, arrays)
        for model in (load(tmp_path / f"{BATCH}.onnx"), load(tmp_path / "1.onnx", batch=BATCH))
    )
    assert len(found) == len(expected)
    require_same(found, expected)

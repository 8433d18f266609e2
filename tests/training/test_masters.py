"""Files of 16 bits that are trained: masters of float32, and results in the types of the file."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import pytest
from conftest import build, sampled
from graphs import stock
from onnx import numpy_helper
from trainings import examples, proto, recipes, weights

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.graph.predicates import HALVES
from gradtool.training.callbacks import Watcher

TYPES = {
    "float16": (onnx.TensorProto.FLOAT16, np.float16),
    "bfloat16": (onnx.TensorProto.BFLOAT16, ml_dtypes.bfloat16),
}
DATA = examples(50)


def narrowed(model: onnx.ModelProto, kind: str) -> onnx.ModelProto:
    """A file of float32 as one of 16 bits."""
    made, (code, dtype) = onnx.ModelProto(), TYPES[kind]
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims:  # the ratio of a Dropout
            array = numpy_helper.to_array(tensor).astype(dtype)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*made.graph.input, *made.graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = code
    return made


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """A file of 16 bits as one of float32, with the same numbers."""
    made, codes = onnx.ModelProto(), [code for code, _ in TYPES.values()]
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        if tensor.data_type in codes:
            array = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*made.graph.input, *made.graph.output):
        if value.type.tensor_type.elem_type in codes:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return made


def tensors(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def rounded(kind):
    """Data whose numbers the type has."""
    x = DATA["x"].astype(TYPES[kind][1])
    return {"x": x, "labels": DATA["labels"]}


def trained(model, options, data, folder, stop=None):
    """What a training comes to, perhaps stopped after a step and gone on with."""

    class Stopping(Watcher):
        now = 0

        def stepped(self, step, *_):
            self.now = step

        def stops(self):
            return self.now == stop

    for resume in (False, True)[: 1 + (stop is not None)]:
        with gt.Trainer(gt.load(model), **options) as trainer:
            watcher = Watcher() if resume else Stopping()
            history = trainer.fit(data, run=folder, resume=resume, watcher=watcher)
            values = trainer.session.values()
            if resume or stop is None:
                trainer.save(folder / "out.onnx")
    return history, values, (folder / "out.onnx").read_bytes()


def drawn(count, seed):
    """Options of trainings, without metrics, and without a scale that skips steps."""
    for kind, options in itertools.islice(recipes(np.random.default_rng(seed)), count):
        scale = 8 if options["loss_scale"] == "dynamic" else options["loss_scale"]
        yield kind, options | {"every": None, "patience": None, "lr": 0.01,
                              "loss_scale": scale}  # fmt: skip


def held_against_float32(kind, net, options, folder):
    """A training of 16 bits beside one of float32 that begins with the same numbers."""
    small, data = narrowed(proto(net), kind), rounded(kind)
    history, values, written = trained(small, options, data, folder / "small")
    wide = {"x": data["x"].astype(np.float32), "labels": data["labels"]}
    other, expected, _ = trained(widened(small), options, wide, folder / "wide")
    loose = 0.01 if kind == "float16" else 0.1

    assert not any(value.dtype in (np.float16, ml_dtypes.bfloat16) for value in values.values())
    assert {n: v.shape for n, v in values.items()} == {n: v.shape for n, v in expected.items()}
    np.testing.assert_allclose(history.losses, other.losses, rtol=loose, atol=loose)
    result = {t.name: t for t in onnx.load_from_string(written).graph.initializer}
    for before in small.graph.initializer:
        after = result[before.name]
        assert after.data_type == before.data_type
        if before.name in values and options["lora"] is None:
            np.testing.assert_array_equal(
                numpy_helper.to_array(after),
                values[before.name].astype(TYPES[kind][1]),
            )


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("case", sampled(range(3), 3))
def test_it_learns_what_its_copy_in_float32_does(case, kind, tmp_path):
    net, options = list(drawn(3, 2))[case]

    held_against_float32(kind, net, options, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("case", range(30))
def test_it_does_so_for_many_options(case, kind, tmp_path):
    net, options = list(drawn(30, 3))[case]

    held_against_float32(kind, net, options, tmp_path)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    "options",
    sampled([{"ema": 0.9, "checkpoint_every": 2}, {"micro_batches": 2}, {"lora": 2},
             {"loss_scale": "dynamic", "optimizer": "momentum"}], 4),
)  # fmt: skip
def test_it_goes_on_in_the_same_bits(options, kind, tmp_path):
    options = {"batch": 10, "steps": 7, "lr": 0.01, "loss": "ce", "optimizer": "adamw"} | options
    small = narrowed(proto(), kind)
    whole, first, one = trained(small, options, rounded(kind), tmp_path / "whole")
    _, second, two = trained(small, options, rounded(kind), tmp_path / "parts", stop=3)

    assert len(whole.losses) == 7
    assert one == two
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value)


def test_steps_that_16_bits_cannot_tell_apart_add_up(tmp_path):
    """Of 1e-5 each, where the numbers are 1: float16 has nothing between 1 and 1.001."""
    text = "net (float16[b, 4] x) => (float16[b, 4] y) { y = Mul (x, w) }"
    model = build(text, w=np.ones(4, np.float16))
    data = {"x": np.ones((8, 4), np.float16), "labels": np.zeros((8, 4), np.float32)}
    options = {"loss": "mse:y", "optimizer": "sgd", "lr": 2e-5, "batch": 8, "steps": 200}
    _, values, _ = trained(model, options, data, tmp_path)

    np.testing.assert_allclose(values["w"], (1 - 1e-5) ** 200, rtol=1e-5)
    assert (tensors(tmp_path / "out.onnx")["w"] == np.float16((1 - 1e-5) ** 200)).all()


def test_it_is_said_once():
    training = gt.grad(gt.load(narrowed(proto(), "float16")), loss="ce", optimizer="adamw")

    (said,) = training.warnings
    assert said.startswith("4 parameters of float16 have masters of float32")


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("options", "has_masters"),
    [
        ({}, False),
        ({"grad_buffers": True}, True),
        ({"optimizer": "sgd"}, True),
        ({"lora": 2}, False),
    ],
)
def test_gradients_alone_keep_the_types_of_the_file(options, has_masters, kind):
    training = gt.grad(
        gt.load(narrowed(proto("normed"), kind)), loss="ce", train_mode=True, **options
    )
    held = training.model.graph.initializers
    for name in ({*training.gradients, *training.updates} - {"x"}) | {"mean", "var"}:
        if name in held:
            assert (held[name].dtype not in HALVES) is has_masters or name in ("mean", "var")


def test_a_step_in_stock_onnxruntime_is_ours():
    pytest.importorskip("onnxruntime")
    model = narrowed(proto("normed"), "float16")
    training = gt.grad(gt.load(model), loss="ce", optimizer="adamw", train_mode=["gain"])
    draws = {f"dropout_{what}": np.array(0) for what in ("seed", "step", "part")}
    numbers = {"lr": 0.01, "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.999}
    feeds = {"x": DATA["x"].astype(np.float16), "labels": DATA["labels"], **draws,
             **{n: np.array(v, np.float32) for n, v in numbers.items()}}  # fmt: skip
    ours, theirs = gt.run(training, feeds), stock(training.model, **feeds)

    assert {v.dtype for n, v in theirs.items() if n.endswith("_next") and n != "step_next"} == {
        np.dtype(np.float32)
    }  # fmt: skip
    for name in ("loss", "mean_next", "var_next", "w2_next", "w2_exp_avg_next"):
        np.testing.assert_allclose(ours.outputs[name], theirs[name], rtol=4e-3, atol=2e-3)


@pytest.mark.parametrize("sparse", [False, True])
def test_of_a_table_the_rows_are_cast(sparse):
    text = "net (int64[b] i) => (float16[b, 4] y) { e = Gather (table, i) y = MatMul (e, w) }"
    rng = np.random.default_rng(0)
    model = gt.load(build(text, table=rng.normal(size=(9, 4)).astype(np.float16),
                          w=rng.normal(size=(4, 4)).astype(np.float16)))  # fmt: skip
    training = gt.grad(model, loss="sum:y", optimizer="sgd", sparse=sparse)
    casts = [n for n in training.model.graph if n.op_type == "Cast"]
    sizes = [n.outputs[0].shape[0] for n in casts if n.outputs[0].dtype in HALVES]
    result = gt.run(training, {"i": np.array([1, 1, 3]), "lr": np.float32(0.5)})
    table, w = (model.graph.initializers[n].const_value.numpy() for n in ("table", "w"))
    table, w = table.astype(np.float32), w.astype(np.float32)
    moved = table.copy()
    np.subtract.at(moved, [1, 1, 3], 0.5 * w.sum(1))

    assert 9 not in sizes
    np.testing.assert_allclose(result.outputs["table_next"], moved, rtol=2e-3, atol=1e-3)


def test_a_weight_that_a_body_reads_is_cast_before_it():
    text = """net (float16[b, 3] x, bool c) => (float16[b, 3] y) {
        h = Mul (x, w)
        y = If (c) <
            then_branch = yes () => (t) { t = Mul (h, w) },
            else_branch = no () => (e) { e = Add (h, w) }
        >
    }"""
    model = gt.load(build(text, w=np.array([1, 2, 3], np.float16)))
    training = gt.grad(model, loss="sum:y", optimizer="sgd")
    feeds = {"x": np.ones((2, 3), np.float16), "lr": np.float32(0.5)}
    for c, gradient in ((True, 2 * 2 * np.array([1, 2, 3])), (False, [4, 4, 4])):
        result = gt.run(training, feeds | {"c": np.array(c)})

        np.testing.assert_array_equal(
            result.outputs["w_next"], np.array([1, 2, 3], np.float32) - 0.5 * np.array(gradient)
        )


def test_labels_that_are_an_input_of_the_model_are_of_its_type():
    text = "net (float16[b, 3] x) => (float16[b, 3] y) { y = Mul (x, w) }"
    model = gt.load(build(text, w=np.array([1, 2, 3], np.float16)))
    training = gt.grad(model, loss="mse:y", labels="x", optimizer="sgd")
    result = gt.run(training, {"x": np.ones((2, 3), np.float16), "lr": np.float32(3)})

    np.testing.assert_allclose(result.outputs["loss"], 5 / 3, rtol=1e-6)
    np.testing.assert_allclose(result.outputs["w_next"], [1, 0, -1], atol=5e-3)


def test_what_its_type_does_not_hold_is_refused(tmp_path):
    text = "net (float16[b, 2] x) => (float16[b, 2] y) { y = Mul (x, w) }"
    training = gt.grad(
        gt.load(build(text, w=np.ones(2, np.float16))), loss="sum:y", optimizer="sgd"
    )
    with gt.Session(training) as session:
        session.step({"x": np.ones((1, 2), np.float16), "lr": np.float32(1e5)})
        with pytest.raises(UsageError, match="'w' has -99999, which is more than float16 holds"):
            session.save(tmp_path / "out.onnx")


@pytest.mark.extra
@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.1), ("adamw", 0.01)])
@pytest.mark.parametrize("kind", TYPES)
def test_pytorch_trains_the_same_weights_in_float32_alike(kind, optimizer, lr, tmp_path):
    torch = pytest.importorskip("torch")
    small, data = narrowed(proto(), kind), rounded(kind)
    options = {"loss": "ce", "optimizer": optimizer, "lr": lr, "batch": 10, "steps": 20,
               "shuffle": False}  # fmt: skip
    history, _, _ = trained(small, options, data, tmp_path)
    p = {n: torch.tensor(np.asarray(v, TYPES[kind][1]).astype(np.float32), requires_grad=True)
         for n, v in weights().items()}  # fmt: skip
    rule = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer](p.values(), lr=lr)
    x, labels = torch.tensor(data["x"].astype(np.float32)), torch.tensor(data["labels"])
    losses = []
    for step in range(20):
        part = slice(step * 10 % 50, step * 10 % 50 + 10)
        y = torch.tanh(x[part] @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        loss = torch.nn.functional.cross_entropy(y, labels[part])
        rule.zero_grad()
        loss.backward()
        rule.step()
        losses.append(loss.item())
    rounding = float(ml_dtypes.finfo(TYPES[kind][1]).eps)

    np.testing.assert_allclose(history.losses, losses, rtol=4 * rounding)
    for name, value in tensors(tmp_path / "out.onnx").items():
        np.testing.assert_allclose(
            value.astype(np.float32), p[name].detach().numpy(), rtol=4 * rounding,
            atol=4 * rounding,
        )  # fmt: skip

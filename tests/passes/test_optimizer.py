"""Whole training steps: what PyTorch's optimizers compute, in standard operators."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from graphs import floats, parse

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.exec import agreement, feeds, verify
from gradtool.exec.inputs import read
from gradtool.io.zeros import Zeros
from gradtool.ops.composites.calls import inline
from gradtool.passes.update_kinds import OPTIMIZERS, kind_of
from gradtool.passes.widen import widen

ROOT = Path(__file__).parents[2]
SAMPLES = ("cnn", "transformer", "lstm")
RATE = 2.0**-7  # a number that float32 holds
STEPS = 3
MODEL = """g (float[N, 3] x, float[3, 4] w, float[4] b) => (y) {
    h = MatMul (x, w) s = Add (h, b) y = Tanh (s)
}"""
MEANS = ["exp_avg", "exp_avg_sq"]
STATE = {
    "sgd": ([], []),
    "momentum": (["momentum"], ["momentum"]),
    "adam": (MEANS, MEANS),
    "adamw": (MEANS, MEANS),
    "adagrad": (["sum"], ["sum"]),
    "rmsprop": (["square_avg"], ["square_avg"]),
    "lamb": (MEANS, MEANS),
    "lion": (["exp_avg"], ["exp_avg"]),
    "adafactor": (["row_var", "col_var"], ["variance"]),
    "muon": (["momentum"], MEANS),
}  # of the matrix w and of the vector b
IN_TORCH = ("sgd", "momentum", "adam", "adamw", "adagrad", "rmsprop", "adafactor")
sys.path.append(str(ROOT / "benchmarks"))

every = pytest.mark.parametrize("optimizer", OPTIMIZERS)
in_pytorch = pytest.mark.parametrize("optimizer", IN_TORCH)


def trained(optimizer: str, **options) -> gt.TrainingGraph:
    return gt.grad(parse(MODEL, "w b"), loss="sum:y", optimizer=optimizer, **options)


def state_of(model: ir.Model) -> dict[str, str]:
    return json.loads(model.metadata_props["gradtool.state"])


def advanced(model: ir.Model, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The next values of parameters and state, as the next step takes them."""
    return {name: outputs[new] for name, new in state_of(model).items()}


def torch_optimizer(name: str, parameters, rate: float):
    """PyTorch's, with its defaults but for the learning rate and the momentum of `momentum`."""
    from torch import optim

    if name in ("sgd", "momentum"):
        return optim.SGD(parameters, lr=rate, momentum=0.9 if name == "momentum" else 0.0)
    kinds = {
        "adam": optim.Adam, "adamw": optim.AdamW, "adagrad": optim.Adagrad,
        "rmsprop": optim.RMSprop, "adafactor": optim.Adafactor,
    }  # fmt: skip
    return kinds[name](parameters, lr=rate)


def in_torch(path: Path, inputs, names, optimizer: str, dtype) -> dict[str, np.ndarray]:
    """The parameters after a few steps in PyTorch."""
    import torch
    from torch_eager import Eager

    eager = Eager(onnx.load(path), dtype)
    tensors = eager.tensors(inputs)
    labels = tensors.pop("labels")
    leaves = [eager.values[n].requires_grad_(True) for n in names]
    stepper = torch_optimizer(optimizer, leaves, RATE)
    for _ in range(STEPS):
        stepper.zero_grad()
        logits = eager(tensors)["logits"]
        logits = logits.reshape(-1, logits.shape[-1])
        torch.nn.functional.cross_entropy(logits, labels.flatten()).backward()
        stepper.step()
    return {n: leaf.detach().numpy() for n, leaf in zip(names, leaves, strict=True)}


@pytest.mark.sample(1, 2.5)
@pytest.mark.extra
@in_pytorch
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 2e-3)])
@pytest.mark.parametrize("name", SAMPLES)
def test_three_steps_of_a_sample_are_those_of_pytorch(name, optimizer, dtype, tolerance):
    """The distance is held against how far the parameters moved.

    Elements whose gradient is zero but for rounding (biases of keys, under a softmax) are left out:
    what an optimizer divides there by its own size is rounding.
    """
    torch = pytest.importorskip("torch")
    path = ROOT / "samples" / f"{name}.onnx"
    inputs = read(str(path.with_suffix(".npz")))
    model = gt.load(path, batch=inputs["labels"].shape[int(name == "lstm")])
    model = widen(model) if dtype == "float64" else model
    training = gt.grad(model, loss="ce:logits", optimizer=optimizer)
    given = {n: a.astype(dtype) if a.dtype.kind == "f" else a for n, a in inputs.items()}
    names = list(training.updates)
    first = {n: training.model.graph.initializers[n].const_value.numpy() for n in names}
    found = given | {"lr": np.asarray(RATE, dtype)}
    for _ in range(STEPS):
        found |= advanced(training.model, gt.run(training, found).outputs)
    expected = in_torch(path, inputs, names, optimizer, getattr(torch, dtype))

    gradients = gt.run(gt.grad(model, loss="ce:logits"), given).gradients
    rounding = 1e-6 if dtype == "float32" else 1e-12
    least = rounding * max(np.abs(g).max() for g in gradients.values())
    apart = moved = 0.0
    for n, gradient in gradients.items():
        counted = np.abs(gradient) >= least
        apart += float(np.sum((found[n] - expected[n])[counted] ** 2.0))
        moved += float(np.sum((expected[n] - first[n])[counted] ** 2.0))
    assert moved > 0
    assert (apart / moved) ** 0.5 < tolerance


@every
def test_state_and_parameters_come_in_and_their_next_values_out(optimizer):
    training = trained(optimizer)
    tensors = [
        f"{name}{what}"
        for name, kept in zip("wb", STATE[optimizer], strict=True)
        for what in ("", *(f"_{s}" for s in kept))
    ]
    kind, setting = kind_of(optimizer)
    steps = ["step"] if kind.counts(setting) else []
    model = training.model
    told = json.loads(model.metadata_props["gradtool.optimizer"])

    assert dict(training.updates) == {"w": "w_next", "b": "b_next"}
    assert set(state_of(model)) == {*tensors, *steps}
    assert state_of(model) == {n: f"{n}_next" for n in state_of(model)}
    assert {v.name for v in model.graph.outputs} == {"y", "loss", *state_of(model).values()}
    assert [v.name for v in model.graph.inputs] == ["x", *told["inputs"], *state_of(model)]
    assert set(told["inputs"]) == set(setting.inputs)
    assert json.loads(model.metadata_props["gradtool.defaults"]) == dict(setting.inputs)
    assert (told["name"], told["lr"]) == (optimizer, "lr")


@pytest.mark.extra
@in_pytorch
def test_numbers_have_the_defaults_of_pytorch(optimizer):
    torch = pytest.importorskip("torch")
    kinds = {
        "sgd": "SGD",
        "momentum": "SGD",
        "adam": "Adam",
        "adamw": "AdamW",
        "adagrad": "Adagrad",
        "rmsprop": "RMSprop",
        "adafactor": "Adafactor",
    }
    theirs = getattr(torch.optim, kinds[optimizer])([torch.zeros(1)]).defaults
    _, setting = kind_of(optimizer)
    inputs, fixed = setting.inputs, setting.fixed
    x = {"x": floats(2, 3)}
    explicit = gt.run(trained(optimizer), x | {n: np.float32(v) for n, v in inputs.items()})

    assert inputs["lr"] == theirs["lr"]
    if optimizer == "adafactor":
        assert (None, fixed["epsilon2"]) == theirs["eps"]
        assert (fixed["clip_threshold"], inputs["beta2_decay"]) == (
            theirs["d"],
            theirs["beta2_decay"],
        )
    else:
        assert fixed.get("epsilon", 0) == theirs.get("eps", 0)
    assert inputs.get("alpha", 0) == theirs.get("alpha", 0)
    assert inputs.get("weight_decay", 0) == theirs["weight_decay"]
    assert [inputs[b] for b in ("beta1", "beta2") if b in inputs] == list(theirs.get("betas", ()))
    for name, array in gt.run(trained(optimizer), x).outputs.items():
        np.testing.assert_array_equal(array, explicit.outputs[name])


def test_state_takes_no_memory_until_it_is_read():
    state = trained("adam").model.graph.initializers["w_exp_avg"]

    assert isinstance(state.const_value, Zeros)
    assert state.shape == [3, 4]


@pytest.mark.sample(3)
@every
def test_a_written_step_runs_in_stock_onnxruntime(optimizer, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    gt.save(trained(optimizer), tmp_path / "step.onnx")
    written = onnx.load(tmp_path / "step.onnx")
    onnx.checker.check_model(written, full_check=True)
    again = gt.load(tmp_path / "step.onnx")
    feeds = {"x": floats(2, 3), "lr": np.float32(0.1)}
    found = gt.run(again, feeds)
    session = onnxruntime.InferenceSession(tmp_path / "step.onnx")
    outputs = [v.name for v in session.get_outputs()]

    assert {n.domain for n in written.graph.node} == {""}
    assert state_of(again) == state_of(trained(optimizer).model)
    for name, array in zip(
        outputs, session.run(outputs, {n: np.asarray(a) for n, a in feeds.items()}), strict=True
    ):
        np.testing.assert_allclose(found.outputs[name], array, rtol=1e-4, atol=1e-6)


@every
def test_the_bytes_are_the_same_every_time(optimizer):
    written = [ir.to_proto(trained(optimizer).model).SerializeToString() for _ in range(2)]

    assert written[0] == written[1]


def test_a_name_that_is_taken_gets_a_number():
    text = MODEL.replace("float[N, 3] x", "float[N, 3] x, float lr").replace("(h, b)", "(h, c)")
    model = parse(text.replace("s = ", "c = Mul (b, lr) s = "), "w b")
    training = gt.grad(model, loss="sum:y", optimizer="sgd")
    told = json.loads(training.model.metadata_props["gradtool.optimizer"])

    assert [v.name for v in training.model.graph.inputs] == ["x", "lr", told["lr"], "w", "b"]
    assert told["lr"] != "lr"


def test_gradients_of_inputs_stay_results():
    training = trained("sgd", input_grad=["x"])
    result = gt.run(training, {"x": floats(2, 3)})

    assert dict(training.gradients) == {"x": "x_grad"}
    assert set(result.gradients) == {"x"}
    np.testing.assert_array_equal(
        result.gradients["x"],
        gt.run(trained("none", input_grad=["x"]), {"x": floats(2, 3)}).gradients["x"],
    )


def test_a_check_by_differences_moves_parameters_that_steps_overwrite():
    """The gradient of x is checked while every step writes w and b anew."""
    training = trained("momentum", input_grad=["x"])
    arrays = {"x": floats(2, 3), "lr": np.float32(1.0), "momentum": np.float32(0.9)}
    said = verify.finite_differences(training.model, arrays, gt.run(training, arrays))

    assert said.startswith("1 gradient agrees")


def test_a_check_by_differences_says_what_it_needs():
    training = trained("sgd")
    arrays = {"x": floats(2, 3), "lr": np.float32(1.0)}

    with pytest.raises(UsageError, match="needs gradients as outputs: leave --optimizer out"):
        verify.finite_differences(training.model, arrays, gt.run(training, arrays))


def test_micro_batches_end_in_a_step():
    """What buffers hold is part of the gradient: half of it twice is the whole."""
    x, rate = floats(2, 3), np.float32(0.5)
    halves = gt.run(trained("none"), {"x": x[:1]}).gradients
    buffers = {f"{n}_grad_in": g for n, g in halves.items()}
    last = gt.run(trained("adam", grad_buffers=True), {"x": x[1:], "lr": rate, **buffers}).outputs
    whole = gt.run(trained("adam"), {"x": x, "lr": rate}).outputs

    for name in ("w_next", "b_next", "w_exp_avg_next"):
        np.testing.assert_allclose(last[name], whole[name], rtol=1e-5, atol=1e-6)


def test_the_halves_of_a_step_compute_its_bits():
    """Forward keeps its weights, and backward its own: state is of the half that updates it."""
    training = trained("adam", loss_seed=True)
    halves = gt.split(training)
    given = {"x": floats(2, 3), "loss_grad": np.float32(1), "lr": np.float32(0.1)}
    given = feeds.defaults(training.model) | given
    first = gt.run(halves.forward, {"x": given["x"]}).outputs
    names = [v.name for v in halves.backward.graph.inputs if not v.is_initializer()]
    second = gt.run(halves.backward, {n: (given | dict(first))[n] for n in names}).outputs

    assert "lr" in names
    assert "gradtool.state" not in halves.forward.metadata_props
    assert state_of(halves.backward) == state_of(training.model)
    for name, array in gt.run(training, given).outputs.items():
        np.testing.assert_array_equal({**first, **second}[name], array)


@pytest.mark.exhaustive
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("cnn", "adam"),
        ("transformer", "sgd"),
        pytest.param("cnn", "sgd", marks=pytest.mark.slow),
        pytest.param("transformer", "adam", marks=pytest.mark.slow),
    ],
)
def test_every_plan_gives_the_same_bits(name, optimizer):
    """Mirrored too: recomputed steps never read a parameter whose next value is there."""
    path = ROOT / "samples" / f"{name}.onnx"
    model = gt.load(path, batch=2).clone()
    training = gt.grad(model, loss="ce:logits", optimizer=optimizer)
    arrays = gt.api.read_inputs(training.model, "random", 0)
    result = gt.run(training, arrays)
    found = agreement.every_plan(
        training.model, arrays, result, ["keep", "reorder", "mirror", "segments"]
    )
    peaks = {a.plan: a.planned for a in found}

    assert peaks["mirror"] <= peaks["keep"]
    assert peaks["segments"] < peaks["keep"]


def test_a_written_plan_keeps_updates_behind_their_gradients(tmp_path):
    training = gt.grad(
        gt.load(ROOT / "samples" / "cnn.onnx", batch=2), loss="ce:logits", optimizer="adam"
    )
    mirrored = gt.mirror(training)
    gt.save(mirrored, tmp_path / "m.onnx")
    again = gt.load(tmp_path / "m.onnx")
    stages = [n.metadata_props["gradtool.stage"] for n in again.graph]

    assert gt.plan(again).peak == mirrored.plan.peak < mirrored.kept.peak
    assert stages.index("update") < max(i for i, s in enumerate(stages) if s == "backward")
    assert "recompute" in stages


def roles(model: ir.Model) -> list[tuple[str, str]]:
    """The names and kinds of what a plan holds from the start."""
    values = gt.plan(model, dims={"N": 2}).program.values
    return [(v.name, v.kind) for v in values if v.kind in ("input", "parameter", "state")]


@pytest.mark.sample(4)
@every
def test_parameters_and_state_are_inputs_that_have_a_default(optimizer, tmp_path):
    """A loaded step has the regions, the peak and the halves that it was written with."""
    training = trained(optimizer)
    gt.save(training, tmp_path / "step.onnx")
    written = onnx.load(tmp_path / "step.onnx")
    again = gt.load(tmp_path / "step.onnx")
    stored = {t.name for t in written.graph.initializer}
    sizes = {"N": 2}

    assert written.ir_version >= 4
    assert [v.name for v in written.graph.input if v.name in stored] == [
        *json.loads(training.model.metadata_props["gradtool.defaults"]), *state_of(training.model)
    ]  # fmt: skip
    assert [v.name for v in again.graph.inputs] == [v.name for v in training.model.graph.inputs]
    assert (
        again.metadata_props["gradtool.defaults"]
        == (training.model.metadata_props["gradtool.defaults"])
    )
    assert roles(again) == roles(training.model)
    assert {kind for name, kind in roles(again) if name in "wb"} == {"parameter"}
    assert gt.plan(again, dims=sizes).peak == gt.plan(training, dims=sizes).peak
    for half, whole in zip(
        (gt.split(again).forward, gt.split(again).backward),
        (gt.split(training).forward, gt.split(training).backward),
        strict=True,
    ):
        assert [v.name for v in half.graph.inputs] == [v.name for v in whole.graph.inputs]
        assert all(v.uses() for v in half.graph.inputs if v.is_initializer())


def test_running_statistics_are_inputs_that_have_a_default():
    path = ROOT / "samples" / "cnn.onnx"
    model = gt.grad(gt.load(path, batch=2), loss="ce:logits").model

    assert {v.name for v in model.graph.inputs if v.is_initializer()} == set(state_of(model))


def test_a_step_can_be_differentiated():
    """How the next w depends on x, through the gradient."""
    again = gt.grad(trained("momentum").model, loss="sum:w_next", wrt=["x"])
    arrays = {"x": floats(2, 3), "lr": np.float32(0.25), "momentum": np.float32(0.9)}
    result = gt.run(again, arrays)

    verify.finite_differences(again.model, arrays, result)
    assert np.abs(result.gradients["x"]).max() > 0


def test_weights_that_are_absent_are_planned_without_data():
    model = parse(MODEL, "w b")
    for value in model.graph.initializers.values():
        value.const_value = None
    training = gt.grad(model, loss="sum:y", wrt=["w", "b"], optimizer="adam")

    assert gt.plan(training, dims={"N": 2}).regions(0)["state"] > 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"optimizer": "lyon"}, r"no optimizer 'lyon'; did you mean 'lion'\?; there are none, sgd"),
        ({"optimizer": "sgd", "wrt": ["x"]}, "no parameter among the values to differentiate by"),
    ],
)
def test_what_cannot_be_updated_is_said(options, reason):
    with pytest.raises(UsageError, match=reason):
        gt.grad(parse(MODEL, "w b"), loss="sum:y", **options)


def test_a_model_that_updates_itself_is_not_updated_twice():
    with pytest.raises(UsageError, match="the model already updates w, b"):
        gt.grad(trained("sgd").model, loss="sum:y", optimizer="sgd")


def test_inlined_bodies_do_not_hold_updates_back(tmp_path):
    """Composites are replaced by their bodies on writing; updates stay where they were."""
    training = gt.grad(
        gt.load(ROOT / "samples" / "cnn.onnx", batch=2), loss="ce:logits", optimizer="sgd"
    )
    model = training.model.clone()
    inline(model)
    gt.save(training, tmp_path / "m.onnx")
    again = gt.load(tmp_path / "m.onnx")

    assert gt.plan(again).peak == gt.plan(training).peak
    assert [n.op_type for n in again.graph] == [n.op_type for n in training.model.graph]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_of_float32_holds_no_float64(name, tmp_path):
    gt.save(trained(name), tmp_path / "step.onnx")

    written = gt.load(tmp_path / "step.onnx")
    values = [*written.graph.initializers.values(), *written.graph.inputs,
              *(v for node in written.graph for v in node.outputs)]  # fmt: skip
    assert {v.dtype for v in values} <= {ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL}


@pytest.mark.parametrize("count", [0, 1, 2, 9, 99, 400, 10_000, 10_000_000])
def test_bias_corrections_have_all_digits_of_float32(count):
    training = trained("adam")
    graph = training.model.graph
    graph.initializers["step"].const_value = ir.Tensor(np.asarray(count, np.int64), name="step")
    rate, root = next(n for n in graph if n.op_type == "AdamUpdate").inputs[2:4]
    graph.outputs.extend([rate, root])

    found = gt.run(training, {"x": floats(2, 3), "lr": np.asarray(RATE, np.float32)}).outputs

    first, second = (-np.expm1((count + 1) * np.log(beta)) for beta in (0.9, 0.999))
    assert float(found[rate.name]) == pytest.approx(RATE / first, rel=5e-7)
    assert float(found[root.name]) == pytest.approx(np.sqrt(second), rel=5e-7)

"""The public names: what they are given, what they return, what they show of themselves."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import TINY, build, sampled, tiny_weights

import gradtool as gt

ACME = '<ir_version: 10, opset_import: ["" : 20, "com.acme" : 1]>'


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """By public function, arguments that it takes."""
    folder = tmp_path_factory.mktemp("public")
    path = folder / "tiny.onnx"
    path.write_bytes(build(TINY, **tiny_weights()).SerializeToString())
    forward = gt.load(path)
    model = gt.load(path, dims={"batch": 2})
    training = gt.grad(model)
    less = gt.mirror(training)
    plan = folder / "plan.json"
    gt.save_plan(less, plan)
    return {
        "load": {"source": path},
        "grad": {"model": model},
        "plan": {"graph": training},
        "run": {"graph": training},
        "split": {"graph": training},
        "mirror": {"graph": training},
        "recompute": {"graph": training, "goal": "sqrt"},
        "frontier": {"graph": training, "points": 2},
        "max_batch": {"graph": gt.grad(forward), "memory": "1MiB", "plans": ["keep"]},
        "explain": {"graph": training, "value": "e"},
        "compare": {"before": training, "now": less},
        "verify": {"graph": training},
        "save_plan": {"rewritten": less, "path": plan, "force": True},
        "load_plan": {"path": plan},
        "save": {"graph": training, "path": folder / "out.onnx", "force": True},
        "report": {"graphs": [training]},
        "write_kit": {"graph": training, "folder": folder / "kit"},
        "merge_kit": {"folder": folder, "trained": folder, "path": folder / "m.onnx"},
        "Session": {"graph": training},
        "Trainer": {"model": model},
        "Budget": {"size": "60%"},
        "Slowdown": {"share": 0.1},
        "Checkpoints": {"names": ["e"]},
    }


WRONG = {
    "none": None, "negative": -1, "share": 1.5, "text": "nonsense", "bytes": b"xx",
    "list": [1, None], "texts": ["a"], "numbers by number": {3: 4}, "sizes": {"zz": 3},
    "object": object(), "folder": Path("/"), "nul": "a\0b", "huge": 10**30, "class": int,
}  # fmt: skip
SLOW = {"points", "time_limit", "max_turns", "max_dynamic", "say", "on_loss", "on_node", "ahead"}
FUNCTIONS = (
    "load", "grad", "plan", "run", "split", "mirror", "recompute", "frontier", "max_batch",
    "explain", "compare", "verify", "save_plan", "load_plan", "save", "report", "write_kit",
    "merge_kit", "Session", "Trainer", "Budget", "Slowdown", "Checkpoints",
)  # fmt: skip
CASES = [
    (function, parameter)
    for function in FUNCTIONS
    for parameter, each in inspect.signature(getattr(gt, function)).parameters.items()
    if each.kind is not each.VAR_KEYWORD and parameter not in SLOW
]


@pytest.mark.parametrize(("function", "parameter"), sampled(CASES, 4, by=lambda case: case[0]))
def test_an_argument_of_a_wrong_kind_is_one_line(function, parameter, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong in WRONG.values():
        told = None
        try:
            getattr(gt, function)(**{**made[function], parameter: wrong})
        except gt.GradtoolError as error:
            told = error
        assert told is None or (str(told) and "\n" not in str(told) and told.exit_code != 70)


@pytest.mark.parametrize("function", FUNCTIONS[:-3])
def test_an_unknown_argument_and_none_are_one_line(function, made):
    for given in ({**made[function], "bogus": 1}, {}):
        with pytest.raises(gt.GradtoolError, match=r"^[^\n]+$"):
            getattr(gt, function)(**given)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda _: gt.grad("m.onnx"), "grad: model is 'm.onnx', .*: gradtool.load reads a file"),
        (lambda m: gt.grad(m, wrt="w"), "grad: wrt is 'w', and has to be a list, each a text"),
        (lambda m: gt.run(m, seed=-1), "run: seed is -1, and has to be a whole number from 0"),
        (lambda m: gt.plan(m, kernels="cuda"), "kernels is 'cuda', and has to be 'auto' or"),
        (lambda _: gt.load(None), "load: source is None, and has to be"),
        (lambda _: gt.load("/"), "/: "),
        (lambda _: gt.load(b""), "is empty"),
        (lambda m: gt.Trainer(m, memory="2 horses"), "'2 horses' has an unknown unit"),
        (lambda m: gt.Trainer(m, batch=0), "batch is 0, and has to be at least 1"),
        (lambda m: gt.Trainer(m, optimizer="adamm"), "no optimizer 'adamm'"),
        (lambda m: gt.Trainer(m, clip_norm="x"), "Trainer: clip_norm is 'x'"),
        (lambda m: gt.Trainer(m).fit(3), "Trainer.fit: data is 3"),
    ],
)
def test_what_is_wrong_and_what_is_meant_is_said(call, said):
    with pytest.raises(gt.UsageError if "empty" not in said and said != "/: " else gt.ModelError,
                       match=said):  # fmt: skip
        call(gt.load(build(TINY, **tiny_weights())))


def test_numbers_of_numpy_and_other_lists_are_taken():
    model = gt.load(build(TINY, **tiny_weights()), dims={"batch": np.int64(2)})
    training = gt.grad(model, wrt=("w",), no_grad={"b"})

    found = gt.run(training, {"x": [[1.0] * 8, [2.0] * 8]}, seed=np.int32(1))
    assert set(found.gradients) == {"w"}


def test_sizes_are_texts_as_in_a_command(made):
    data = {"x": np.ones((4, 8), np.float32)}
    forward = gt.load(made["load"]["source"])
    history = gt.Trainer(forward, batch=2, steps=1, memory="64KiB").fit(data)

    assert history.fit is not None
    assert gt.Trainer(forward, memory="64KiB")._options.memory == 64 * 1024


# ----------------------------------------------------------------------------------------- losses


OPERATIONS = {
    "floor": lambda y: y // 2, "compare": lambda y: y > 0,
    "index": lambda y: y[0], "product": lambda y: y @ y, "text": lambda y: y + "a",
    "none": lambda y: y * None, "array on the left": lambda y: np.ones(4, np.float32) + y,
    "number": lambda _: 1.0, "list": lambda y: [1.0, 2.0] * y, "float": float, "len": len,
}  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_loss_that_cannot_be_is_one_line(operation, made):
    def wrong(op, y):
        return op.ReduceSum(OPERATIONS[operation](y), keepdims=0)

    with pytest.raises(gt.GradtoolError, match=r"^[^\n]+$"):
        gt.grad(made["grad"]["model"], loss=wrong, wrt=["w"])


@pytest.mark.sample(2)
@pytest.mark.parametrize("dims", [["N", 3], [5, 3]])
def test_an_operator_without_a_shape_has_the_one_that_the_file_declares(dims):
    code = f"""
import numpy as np, onnx, sys
import gradtool as gt
from conftest import build
model = build("g (float[N,3] x) => (float loss) {{ y = com.acme.Unshaped(x, w) z = Exp(y) "
              "loss = ReduceSum<keepdims=0>(z) }}", {ACME!r}, w=np.ones(3, np.float32))
model.graph.value_info.append(onnx.helper.make_tensor_value_info("y", 1, {dims!r}))
@gt.gradient("com.acme::Unshaped")
def gradient(op, node, dy):
    return dy, op.sum(dy, [0])
@gt.kernel("com.acme::Unshaped", may_inplace=())
def kernel(xp, x, w, *, out, work):
    xp.add(x, w, out=out[0])
training = gt.grad(gt.load(model))
print(gt.verify(training, {{"x": np.ones((5, 3), np.float32) / 2}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "agrees with finite differences" in done.stdout


# ---------------------------------------------------------------------------- what they show


def test_the_package_lists_its_names():
    assert set(gt.__all__) <= set(dir(gt))
    assert all(hasattr(gt, name) for name in dir(gt))


def test_warnings_of_a_graph_are_warnings():
    headless = "n (float[batch, 8] x) => (float[batch, 4] y) { h = MatMul (x, w) y = Tanh (h) }"
    model = gt.load(build(headless, w=tiny_weights()["w"]))
    with pytest.warns(gt.GradtoolWarning) as told:
        training = gt.grad(model)

    assert [str(each.message) for each in told] == list(training.warnings)
    assert {each.filename for each in told} == {__file__}


def test_what_is_shown_is_short_and_escaped(made):
    name = "<script>alert(1)</script>"
    proto = build(TINY, **tiny_weights())
    proto.graph.name = name
    training = gt.grad(gt.load(proto, dims={"batch": 2}), loss="loss")
    less = gt.mirror(training)
    result = gt.run(training, measure=True)
    history = gt.Trainer(made["grad"]["model"], steps=1).fit({"x": np.ones((2, 8), np.float32)})
    with gt.Session(training) as session:
        shown = [
            training, gt.plan(training), result, result.measurement, less, less.planned, less.work,
            gt.split(training), gt.report([training]), gt.compare(training, less), session, history,
            gt.load_plan(made["load_plan"]["path"]), gt.explain(training, "e"), less.plan.program,
            gt.frontier(training, points=2),
        ]  # fmt: skip
        for each in shown:
            assert len(repr(each).splitlines()) <= 20
            assert len(repr(each)) <= 400, repr(each)
            html = each._repr_html_() if hasattr(each, "_repr_html_") else ""
            assert "<script>" not in html
        for each in (training, less.plan, result, history, less):
            assert each._repr_html_().startswith("<table>")


def test_public_docstrings_say_what_is_raised():
    for function in FUNCTIONS[:18]:
        text = inspect.getdoc(getattr(gt, function)) or ""
        assert len(text.partition("\n")[0]) <= 100, function
        assert "Raises:" in text, function


def test_the_table_of_the_page_has_every_function():
    page = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")

    assert [name for name in FUNCTIONS if f"{name}(" not in page] == []

"""Gradients of tables as rows, against torch's sparse ones, and what they take."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from conftest import sampled
from graphs import parse
from kits import Stock
from updates import apart, in_stock, ours

import gradtool as gt
from gradtool.commands.schema import schema_named
from gradtool.errors import UsageError
from gradtool.passes.accumulation import accumulating, updating
from gradtool.passes.update_groups import Updates

BOUND = 1e-8
STEPS = 100
CASES = [
    ("sgd", {"lr": 0.1}),
    ("adagrad", {"lr": 0.1}),
    ("adam", {"lr": 0.02}),
    ("adam", {"lr": 0.02, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}),
    ("adamw", {"lr": 0.02}),
]
MODEL = """g (int64[4, 3] i, int64[5] j, double[4, 3, 2, 3] c, double[5, 2, 3] d,
           double[9, 2, 3] a, double[7, 2, 3] b, double[2, 3] w) => (y) {
    r = Gather (a, i) p = Mul (r, c) q = Mul (p, w)
    s = Gather (b, j) t = Mul (s, d)
    u = Gather (a, j) v = Mul (u, d)
    x = ReduceSum <keepdims = 0> (q) z = ReduceSum <keepdims = 0> (t)
    k = ReduceSum <keepdims = 0> (v) y = Sum (x, z, k)
}"""  # a is read twice


def model(seed: int) -> ir.Model:
    made = parse(MODEL, "a b w")
    rng = np.random.default_rng([seed, 1])
    for name, value in made.graph.initializers.items():
        array = rng.standard_normal(value.shape.numpy())
        value.const_value = ir.Tensor(array, name=name)
    return made


def batches(seed: int):
    """Indices with repeats, counted from either end; now and then one row alone."""
    rng = np.random.default_rng([seed, 2])
    for step in range(STEPS):
        few = 1 if step % 7 == 3 else 7
        yield {
            "i": rng.integers(-few, few, (4, 3)), "j": rng.integers(-few, few, 5),
            "c": rng.standard_normal((4, 3, 2, 3)), "d": rng.standard_normal((5, 2, 3)),
        }  # fmt: skip


def in_torch(optimizer, options, seed, clip):
    torch = pytest.importorskip("torch")
    start = {n: v.const_value.numpy() for n, v in model(seed).graph.initializers.items()}
    tables = {n: torch.nn.Embedding(len(start[n]), 6, sparse=True).double() for n in "ab"}
    for name, table in tables.items():
        table.weight.data = torch.tensor(start[name].reshape(len(start[name]), 6))
    w = torch.nn.Parameter(torch.tensor(start["w"]))
    weights = [table.weight for table in tables.values()]
    given = {k: v for k, v in options.items() if k not in ("beta1", "beta2", "epsilon")}
    if optimizer != "sgd" and "epsilon" in options:
        given["eps"] = options["epsilon"]
    if "beta1" in options:
        given["betas"] = options["beta1"], options["beta2"]
    whole = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam,
             "adamw": torch.optim.AdamW}  # fmt: skip
    rows = {**whole, "adam": torch.optim.SparseAdam, "adamw": torch.optim.SparseAdam}
    steppers = [rows[optimizer](weights, **given), whole[optimizer]([w], **given)]
    for batch in batches(seed):
        i, j, c, d = (torch.tensor(batch[n]) for n in "ijcd")
        r, s, u = (
            tables[n](k % len(start[n])).reshape(*k.shape, 2, 3)
            for n, k in (("a", i), ("b", j), ("a", j))
        )
        loss = (r * c * w).sum() + (s * d).sum() + (u * d).sum()
        for stepper in steppers:
            stepper.zero_grad()
        loss.backward()
        if clip is not None:
            for p in (*weights, w):
                p.grad = p.grad.coalesce() if p.grad.is_sparse else p.grad
                (p.grad.values() if p.grad.is_sparse else p.grad).clamp_(-clip, clip)
        with torch.sparse.check_sparse_tensor_invariants():  # else it warns
            for stepper in steppers:
                stepper.step()
    found = {n: t.weight.detach().numpy().reshape(start[n].shape) for n, t in tables.items()}
    return found | {"w": w.detach().numpy()}


def trained(seed, optimizer, options, **more):
    free = {"no_decay": ["a", "b"]} if optimizer == "adamw" else {}
    return gt.grad(
        model(seed), loss="y", optimizer=optimizer, optimizer_option=options, **free, **more
    )


@pytest.mark.extra
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("seed", sampled(range(3)))
@pytest.mark.parametrize(("optimizer", "options"), CASES, ids=str)
def test_a_hundred_steps_are_those_of_torch(optimizer, options, seed, clip):
    training = trained(seed, optimizer, options, sparse=True, clip_value=clip)
    found = ours(training, batches(seed))

    assert training.warnings == ()
    assert apart(found, in_torch(optimizer, options, seed, clip)) < BOUND
    assert apart(in_stock(training, batches(seed)), found) < BOUND


@pytest.mark.sample(3)
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("seed", range(3))
def test_rows_have_the_bits_of_the_whole_gradient(optimizer, seed):
    """Where nothing happens to the rows without one, that is the same update."""
    rows, whole = (
        ours(trained(seed, optimizer, {"lr": 0.1}, sparse=sparse), batches(seed))
        for sparse in (True, False)
    )
    # Reads of one table are summed in another order: b is read once.
    for name in ("b", *(n for n in whole if n.startswith("b_"))):
        assert np.array_equal(rows[name], whole[name])
    assert apart(rows, whole) < 1e-13


def table_model(rows=5000, width=64, count=96, dtype="float"):
    """A classifier of bags of words."""
    return parse(
        f"""g (int64[{count}] i, {dtype}[{rows}, {width}] table, {dtype}[{width}, 4] w) => (y) {{
            r = Gather (table, i) y = MatMul (r, w)
        }}""",
        "table w",
    )


@pytest.mark.parametrize("limits", [{}, {"clip_value": 0.1}], ids=str)
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_no_gradient_of_the_table_is_planned_or_measured(optimizer, limits):
    rows, width, count = 5000, 64, 96
    whole, sparse = (
        gt.grad(table_model(), loss="ce", optimizer=optimizer, sparse=sparse, **limits)
        for sparse in (False, True)
    )
    plan = gt.plan(sparse, kernels="numpy")
    size = rows * width * 4
    large = [b for b in plan.buffers if b.bytes >= size]

    assert {b.region for b in large} <= {"parameters", "state"}
    assert gt.plan(whole, kernels="numpy").peak - plan.peak > size - 8 * count * width * 4
    feeds = {"i": np.arange(count) * 7, "labels": np.arange(count) % 4}
    result = gt.run(sparse, feeds, measure=True, kernels="numpy")
    assert plan.peak - 64 < result.measurement.high_water <= plan.peak
    feeds["i"] //= 14
    result = gt.run(sparse, feeds, measure=True, kernels="numpy")
    assert result.measurement.high_water <= plan.peak  # places of rows that are read again are free
    stays = {
        k: gt.run(whole, feeds, kernels="numpy").outputs[k]
        for k in result.outputs
        if optimizer != "adam"
    }
    for name, expected in stays.items():
        np.testing.assert_array_equal(result.outputs[name], expected)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_the_written_file_makes_no_gradient_of_the_table(optimizer, tmp_path):
    """Of the table's size stock operators make the next values alone."""
    path = tmp_path / "step.onnx"
    training = gt.grad(table_model(), loss="ce", optimizer=optimizer, sparse=True)
    gt.save(training, path)
    written = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True, data_prop=True)
    large = {
        v.name
        for v in (*written.graph.value_info, *written.graph.output)
        if [d.dim_value for d in v.type.tensor_type.shape.dim] == [5000, 64]
    }
    made = {name for node in written.graph.node for name in node.output}

    names = {"table", *(n for n in written_state(written) if n.startswith("table_"))}
    assert large & made == {f"{name}_next" for name in names}
    assert not {n.op_type for n in written.graph.node} & {"Unique", "NonZero", "Compress"}


def written_state(model):
    (props,) = (p.value for p in model.metadata_props if p.key == "gradtool.state")
    return json.loads(props)


TIED = """g (int64[4] i, float[9, 3] table) => (y) {
    r = Gather (table, i) t = Transpose <perm = [1, 0]> (table) y = MatMul (r, t)
}"""
ALONG = """g (int64[2] i, float[9, 3] table) => (y) { y = Gather <axis = 1> (table, i) }"""


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        (TIED, {"optimizer": "sgd"}, "Transpose reads it as well"),
        (ALONG, {"optimizer": "sgd"}, "more than rows along the first axis"),
        (None, {"optimizer": "sgd", "grad_buffers": True}, "more than rows along the first axis"),
        (None, {"optimizer": "momentum"}, "momentum moves rows without a gradient"),
        (None, {"optimizer": "rmsprop"}, "rmsprop moves rows without a gradient"),
        (None, {"optimizer": "adamw"}, "weight decay changes every row"),
        (None, {"optimizer": "adam", "clip_norm": 1.0}, "--clip-norm needs the norm"),
    ],
    ids=str,
)
def test_what_needs_a_whole_gradient_has_one_and_says_why(text, options, reason):
    made = table_model() if text is None else parse(text, "table")
    loss = "ce" if text is None else "sum:y"
    sparse = gt.grad(made, loss=loss, sparse=True, **options)
    whole = gt.grad(made, loss=loss, **options)

    (said,) = sparse.warnings
    assert said.startswith("--sparse: table has a whole gradient: ")
    assert reason in said
    assert [str(n) for n in sparse.model.graph] == [str(n) for n in whole.model.graph]


def test_sums_of_micro_batches_are_whole():
    first = gt.grad(table_model(), loss="ce", grad_buffers=True, loss_seed=True)
    said = updating(accumulating(first.model), Updates("sgd", sparse=True)).said

    (line,) = said
    assert line.startswith("--sparse: table has a whole gradient")


def test_without_a_table_it_is_refused():
    made = parse("g (float[2, 3] x, float[3, 4] w) => (y) { y = MatMul (x, w) }", "w")
    with pytest.raises(UsageError, match="--sparse changes nothing: Gather reads no parameter"):
        gt.grad(made, loss="sum:y", optimizer="sgd", sparse=True)
    with pytest.raises(UsageError, match="sparse needs optimizer"):
        gt.grad(made, loss="sum:y", sparse=True)


@pytest.mark.parametrize("count", [1, 5, 9])
def test_a_gradient_by_rows_is_no_gradient_of_the_parameter(count):
    """Also where there are as many indices as rows: hooks do not take one for the other."""
    training = gt.grad(table_model(9, 3, count), loss="ce", optimizer="sgd", sparse=True)
    seen = []
    with gt.Session(training) as session:
        session.on_gradient(lambda name, *_: seen.append(name))
        session.step({"i": np.zeros(count, np.int64), "labels": np.zeros(count, np.int64)})

    assert seen == ["w"]


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_other_types_are_updated_by_rows(dtype):
    rng = np.random.default_rng(0)
    made = table_model(12, 5, 20, dtype)
    for name, value in made.graph.initializers.items():
        array = rng.standard_normal(value.shape.numpy()).astype(value.dtype.numpy())
        value.const_value = ir.Tensor(array, name=name)
    feeds = {"i": rng.integers(0, 12, 20), "labels": rng.integers(0, 4, 20)}
    for optimizer in ("sgd", "adagrad"):
        one, two = (
            gt.run(gt.grad(made, loss="ce", optimizer=optimizer, sparse=sparse), feeds).outputs
            for sparse in (True, False)
        )
        np.testing.assert_array_equal(one["table_next"], two["table_next"])


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_a_kit_updates_rows(optimizer, tmp_path):
    ir.save(table_model(50, 6, 12), tmp_path / "bags.onnx")
    training = gt.grad(gt.load(tmp_path / "bags.onnx"), loss="ce", optimizer=optimizer, sparse=True)
    gt.write_kit(training, tmp_path / "kit")
    kit, rng = Stock(tmp_path / "kit"), np.random.default_rng(0)
    schema = schema_named("kit")
    jsonschema.validate(kit.manifest, schema)
    with gt.Session(training) as session:
        for _ in range(5):
            batch = {"i": rng.integers(-50, 50, 12), "labels": rng.integers(0, 4, 12)}
            loss = kit.step(batch)[kit.manifest["loss"]]
            np.testing.assert_allclose(loss, session.step(batch).loss, rtol=1e-5)
        values = session.values()

    assert kit.manifest["optimizer"]["rows"] == ["table"]
    for name, value in kit.state.items():
        np.testing.assert_allclose(value, values[name], rtol=1e-4, atol=1e-6)

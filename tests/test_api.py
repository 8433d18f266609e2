"""The public interface: what is taken, what is refused, and how results show themselves."""

import inspect
import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import gradtool as gt
from gradtool.errors import GradtoolError, ModelError, UsageError
from gradtool.workloads.budgets.limits import Budget as Limit

SAMPLES = Path(__file__).parents[1] / "samples"
LAYERS = """net (float[N, 16] x) => (float y) {
    a = MatMul (x, w) b = Tanh (a) c = Sin (b) d = MatMul (c, w) e = Tanh (d) f = Sin (e)
    y = ReduceMean <keepdims = 0> (f)
}"""
W = np.random.default_rng(0).standard_normal((16, 16)).astype("f")
DIMS = {"N": 64}


@pytest.fixture
def path(model):
    return model(LAYERS, w=W)


@pytest.fixture
def training(path):
    return gt.grad(gt.load(path, dims=DIMS), loss="y")


def test_every_public_name_is_there():
    for name in gt.__all__:
        assert getattr(gt, name) is not None
    assert sorted(gt.__all__) == sorted(set(gt.__all__))


# ------------------------------------------------------------------------- load


def held(path, form):
    return {
        "path": lambda: path,
        "text": lambda: str(path),
        "bytes": path.read_bytes,
        "message": lambda: onnx.load(path),
        "ir": lambda: ir.load(path),
    }[form]()


@pytest.mark.parametrize("form", ["path", "text", "bytes", "message", "ir"])
def test_a_model_is_loaded_from_wherever_it_is(path, form, tmp_path):
    expected = gt.run(gt.grad(gt.load(path, dims=DIMS), loss="y")).gradients["w"]
    source = held(path, form)
    loaded = gt.load(source, dims=DIMS)
    found = gt.run(gt.grad(loaded, loss="y")).gradients["w"]
    gt.save(gt.grad(loaded, loss="y"), tmp_path / "w.grad.onnx")

    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("form", ["bytes", "message", "ir"])
def test_what_is_given_stays_as_it_is_and_is_what_a_session_saves(path, form, tmp_path):
    source = held(path, form)
    training = gt.grad(gt.load(source, dims=DIMS), loss="y", optimizer="sgd")
    with gt.Session(training) as session:
        session.step({"x": np.ones((64, 16), "f"), "lr": 1.0})
        session.save(tmp_path / "trained.onnx")
        w = session.values("w")["w"]

    trained = onnx.load(tmp_path / "trained.onnx")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(trained.graph.initializer[0]), w)
    assert not np.array_equal(w, W)
    assert trained.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    again = gt.load(source, dims=DIMS)
    np.testing.assert_array_equal(again.graph.initializers["w"].const_value.numpy(), W)


def test_weights_beside_an_ir_model_are_taken_along(path, tmp_path):
    beside = tmp_path / "beside"
    beside.mkdir()
    onnx.save(onnx.load(path), beside / "m.onnx", save_as_external_data=True, size_threshold=64)
    found = gt.run(gt.grad(gt.load(ir.load(beside / "m.onnx"), dims=DIMS), loss="y"))
    expected = gt.run(gt.grad(gt.load(path, dims=DIMS), loss="y"))

    np.testing.assert_array_equal(found.gradients["w"], expected.gradients["w"])


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        (
            3,
            UsageError,
            "load: source is 3, and has to be a text, a path, bytes, a ModelProto or a",
        ),
        (None, UsageError, "source is None"),
        (b"", ModelError, "the model given: is empty"),
        (b"abc", ModelError, "the model given: "),
        (onnx.ModelProto(), ModelError, "the model given: "),
    ],
)
def test_what_is_no_model_is_told(source, kind, message):
    with pytest.raises(kind) as caught:
        gt.load(source)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------ goals


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "goal", [gt.Budget("80%"), gt.Budget("min"), gt.Slowdown(0.5), gt.Slowdown("50%"),
             gt.Checkpoints(["c"]), "sqrt"],
)  # fmt: skip
def test_a_goal_says_what_to_reach(training, goal):
    found = gt.recompute(training, goal, kernels="numpy")

    assert found.plan.peak < found.kept.peak
    for kernels in ("numpy", "native"):
        kept, less = (gt.run(g, kernels=kernels).gradients["w"] for g in (training, found))
        np.testing.assert_array_equal(less, kept)


def test_a_budget_may_be_searched_for_quickly(training):
    found = gt.recompute(training, gt.Budget("min"), strategy="min-cut")
    assert found.plan.name == "min-cut"


def test_a_budget_that_nothing_fits_says_what_can_be_reached(training):
    with pytest.raises(gt.OverBudget) as caught:
        gt.recompute(training, gt.Budget(1000))

    assert caught.value.budget == 1000
    assert caught.value.reached == gt.recompute(training, gt.Budget("min")).plan.peak


@pytest.mark.parametrize("goal", [None, 3, ["c"], Limit(1)])
def test_what_is_no_goal_is_told(training, goal):
    with pytest.raises(
        UsageError, match=r"recompute: goal is .*, and has to be a text, a Budget, a Slow"
    ):
        gt.recompute(training, goal)


def test_a_plan_is_written_read_and_followed(training, tmp_path):
    first = gt.recompute(training, gt.Budget("80%"))
    size = gt.save_plan(first, tmp_path / "plan.json")
    plan = gt.load_plan(tmp_path / "plan.json")
    second = gt.recompute(training, plan)

    assert size == (tmp_path / "plan.json").stat().st_size
    assert isinstance(plan, gt.PlanFile)
    assert second.plan.peak == first.plan.peak == plan.peak
    assert second.proof.extra == first.proof.extra
    with pytest.raises(UsageError, match="exists"):
        gt.save_plan(first, tmp_path / "plan.json")


def test_a_mirrored_graph_has_a_plan_to_write_too(training, tmp_path):
    mirrored = gt.mirror(training)
    gt.save_plan(mirrored, tmp_path / "plan.json")

    assert gt.recompute(training, gt.load_plan(tmp_path / "plan.json")).plan.peak == (
        mirrored.plan.peak
    )


# --------------------------------------------------------------------- frontier


def test_a_frontier_takes_every_option_of_recompute():
    from gradtool.workloads.rewriting import frontier, recompute

    options = inspect.signature(recompute).parameters.keys() - {"goal", "prove"}  # of one budget
    assert options <= inspect.signature(frontier).parameters.keys()


def test_a_frontier_is_a_row_of_plans_and_a_table(training):
    found = gt.frontier(training, 4)

    assert len(found) == len(list(found)) >= 2
    assert found[-1].plan.peak <= found.kept.peak
    extra = [point.proof.extra for point in found]
    assert extra == sorted(extra, reverse=True)
    assert "budget" in str(found)
    assert repr(found).startswith(f"Frontier({len(found)} plans, ")


def test_the_state_of_an_optimizer_is_part_of_a_frontier(training):
    plain, adam = gt.frontier(training, 3), gt.frontier(training, 3, optimizer="adam")

    assert plain.state == 0
    assert adam.state >= 2 * W.nbytes
    assert f"optimizer state of {adam.state / 1024:.2f} KiB is included" in str(adam)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "sqrt"}, "cannot be combined with"),
        ({"strategy": "optimum"}, "did you mean 'optimal'"),
        ({"optimizer": "lyon"}, "no optimizer 'lyon'"),
        ({"points": 1}, "2 points at least, not 1"),
    ],
)
def test_a_frontier_refuses_what_it_cannot_use(training, options, message):
    with pytest.raises(UsageError, match=message):
        gt.frontier(training, **options)


# ----------------------------------------------------------- verify and compare


@pytest.mark.parametrize("by", ["finite-diff", "plans"])
def test_gradients_are_verified(training, by):
    assert gt.verify(training, by=by).startswith("1 gradient")


def test_gradients_are_verified_by_stock_onnxruntime(training):
    pytest.importorskip("onnxruntime")
    assert "stock onnxruntime" in gt.verify(training, by="ort")


def test_a_wrong_gradient_is_found(training):
    node = next(n for n in training.model.graph if n.op_type == "TanhGrad")
    node.replace_input_with(0, node.inputs[1])
    with pytest.raises(GradtoolError, match="the gradient of 'w' disagrees"):
        gt.verify(training)


def test_an_unknown_check_is_told(training):
    with pytest.raises(UsageError, match="no check 'finite'; did you mean 'finite-diff'"):
        gt.verify(training, by="finite")


def test_a_comparison_tells_what_moved_and_prints_it(training, tmp_path):
    less = gt.recompute(training, "sqrt", kernels="numpy")
    gt.save_plan(less, tmp_path / "less.json")
    kept = gt.plan(training, kernels="numpy")
    for before, now in (
        (training, less), (kept, less), (training, tmp_path / "less.json"),
    ):  # fmt: skip
        found = gt.compare(before, now, kernels="numpy")

        assert found["peak"] == less.plan.peak - less.kept.peak < 0
        assert "whole step" in str(found)
    assert gt.compare(training, training)["peak"] == 0


def test_a_value_is_explained(training):
    found = gt.explain(training, "b")

    assert found.facts.value == "b"
    assert found.facts.bytes == 64 * 16 * 4
    assert str(found).splitlines()[0].startswith("b: activation")
    with pytest.raises(UsageError, match="no value 'q'"):
        gt.explain(training, "q")


def test_the_largest_batch_is_found_for_each_plan(path):
    training = gt.grad(gt.load(path), loss="y")
    memory = gt.plan(training, dims={"N": 100}).peak
    found = gt.max_batch(training, memory, plans=["keep", "sqrt"])

    assert list(found) == ["keep", "sqrt"]
    assert 100 <= found["keep"] <= found["sqrt"]
    assert gt.plan(training, dims={"N": found["keep"]}).peak <= memory
    assert gt.plan(training, dims={"N": found["keep"] + 1}).peak > memory
    assert gt.max_batch(training, "1B", plans=["keep"]) == {"keep": 0}


def test_a_fixed_batch_has_no_largest(training):
    with pytest.raises(UsageError, match="the batch is fixed"):
        gt.max_batch(training, "1GiB")


def test_an_unknown_plan_has_no_largest_batch(path):
    with pytest.raises(UsageError, match="did you mean 'sqrt'"):
        gt.max_batch(gt.grad(gt.load(path), loss="y"), "1GiB", plans=["sqr"])


# ------------------------------------------------------------------------ shown


def test_a_report_holds_numbers_and_prints_a_table(training):
    less = gt.recompute(training, "sqrt")
    found = gt.report([training, less.plan], ["before", "after"])

    assert [row.model for row in found] == ["before", "after"]
    assert found[0].peak == gt.plan(training).peak
    assert all(type(v) is int for row in found for k, v in vars_of(row).items() if k != "model")
    assert str(found).splitlines()[0].split() == [
        "model", "peak", "activations", "temporaries", "parameters", "gradients", "steps"
    ]  # fmt: skip


def vars_of(row):
    return {name: getattr(row, name) for name in type(row).__slots__}


def test_names_are_as_many_as_graphs(training):
    with pytest.raises(UsageError, match="1 names for 2 graphs"):
        gt.report([training, training], ["one"])


@pytest.mark.parametrize("make", ["report", "compare", "explain", "frontier"])
def test_results_show_themselves_in_a_notebook(training, make):
    found = {
        "report": lambda: gt.report([training], ["<b>&"]),
        "compare": lambda: gt.compare(training, training, ("<b>&", "now")),
        "explain": lambda: gt.explain(training, "b"),
        "frontier": lambda: gt.frontier(training, 2),
    }[make]()
    html = found._repr_html_()

    assert html.startswith("<table>") == (make != "explain")
    assert html.count("<table>") == html.count("</table>")
    assert html.count("<td") == html.count("</td>")
    assert "<b>&" not in html
    assert len(repr(found)) < 100


def test_graphs_and_plans_have_short_names(path):
    training = gt.grad(gt.load(path), loss="y", optimizer="adam")
    plan = gt.plan(training, dims=DIMS)
    less = gt.recompute(training, "sqrt", dims=DIMS)

    assert repr(training).startswith("TrainingGraph('net', loss 'y', 1 gradients, 7 forward + ")
    assert (
        repr(plan) == f"Plan('keep', peak {plan.peak} bytes, {len(plan.program.steps)} steps, N=64)"
    )
    assert repr(less).startswith("Rewritten('net', plan 'sqrt', peak ")
    assert all(len(repr(each)) < 120 for each in (training, plan, less))


# -------------------------------------------------------------------- engine ort


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"device": "cuda"}, "device"),
        ({"check_nan": True}, "check_nan"),
        ({"check_arena": True}, "check_arena"),
        ({"max_turns": 3}, "max_turns"),
        ({"max_dynamic": 3}, "max_dynamic"),
    ],
)
def test_stock_onnxruntime_refuses_what_only_our_executor_does(training, options, named):
    with pytest.raises(UsageError, match=f"leave out {named}|{named} needs engine"):
        gt.run(training, engine="ort", **options)


@pytest.mark.exhaustive
def test_stock_onnxruntime_runs_what_is_left(training):
    pytest.importorskip("onnxruntime")
    found, expected = gt.run(training, engine="ort"), gt.run(training)
    np.testing.assert_allclose(found.gradients["w"], expected.gradients["w"], atol=1e-5)
    assert json.loads(training.model.metadata_props["gradtool.gradients"]) == {"w": "w_grad"}

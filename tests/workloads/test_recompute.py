"""A schedule written into a model: the same bits, and the memory that the schedule promised."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from graphs import lines, parse
from onnx_ir import ModelConfiguration, NodeDeviceConfiguration, ShardingSpec

import gradtool as gt
from gradtool.graph.composites import DOMAIN
from gradtool.ops import kernels
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.schedule import Schedule, pruned, replay
from gradtool.program.declared import narrowed
from gradtool.program.flatten import flatten
from gradtool.workloads.recompute import apply, mark, prepared

CHAIN = """g (float[4, 4] x, float[4, 4] w) => (y) {
    a = MatMul (x, w) b = Tanh (a) c = Exp (b) d = Tanh (c) y = ReduceSum <keepdims = 0> (d)
}"""
GRAPHS = {
    "chain": (CHAIN, "w"),
    "views": (
        """g (float[4, 6] x, float[6, 6] w) => (y)
            <int64[2] flat = {24, 1}, int64[2] back = {4, 6}> {
            a = MatMul (x, w) b = Tanh (a) r = Reshape (b, flat) e = Exp (r) t = Transpose (b)
            m = MatMul (b, t) n = MatMul (m, m) f = Reshape (e, back)
            s = MatMul (n, f) y = Tanh (s)
        }""",
        "w",
    ),
    "training norm": (
        """g (float[4, 3, 2, 2] x, float[3] w, float[3] b, float[3] m, float[3] v) => (y) {
            n, p, q = BatchNormalization <training_mode = 1> (x, w, b, m, v) r = Tanh (n)
            y = GlobalAveragePool (r)
        }""",
        "w b m v",
    ),
    "control": (
        """g (float[4, 3] x, float[3, 3] w) => (y) <int64 three = {3}, bool go = {1}> {
            h = MatMul (x, w) t = Tanh (h)
            l = Loop (three, go, t) <body = body (int64 i, bool c, float[4, 3] v) => (d, o) {
                d = Identity (c) e = Mul (v, t) o = Tanh (e)
            }>
            s = Add (l, t) y = Exp (s)
        }""",
        "w",
    ),
    "dropout": (
        """g (float[4, 8] x, float[8, 8] w) => (y) <float half = {0.5}, bool on = {1}> {
            h = MatMul (x, w) k, mask = Dropout <seed = 3> (h, half, on) t = Tanh (k) e = Exp (t)
            y = Mul (e, t)
        }""",
        "w",
    ),
}


def trained(name: str) -> ir.Model:
    text, weights = GRAPHS[name]
    return prepared(gt.grad(parse(text, weights), loss="sum").model)


def shuffled(program, seed: int) -> Schedule:
    """The forward steps again before backward, those that a coin picks."""
    rng = np.random.default_rng(seed)
    begin = next(i for i, s in enumerate(program.steps) if s.stage == "backward")
    again = [i for i in range(begin) if program.steps[i].recomputable and rng.random() < 0.7]
    end = range(begin, len(program.steps))
    return pruned(program, Schedule.of([*range(begin), *again, *end], "_again"))


def rewritten(model: ir.Model, schedule: Schedule, program) -> ir.Model:
    model = model.clone()
    apply(model, program, schedule)
    return model


def shape_of(program) -> list:
    """What a program does: operators, sizes, and which operands are windows."""
    return [
        (s.op, s.workspace, s.flops,
         [None if v is None else program.values[v].spec for v in s.inputs],
         [None if v is None else program.values[v].view is None for v in s.inputs],
         [v is None for v in s.outputs])
        for s in program.steps
    ]  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", GRAPHS)
def test_the_written_model_is_the_replayed_program(name, seed, tmp_path):
    model = trained(name)
    program = flatten(model)
    schedule = shuffled(program, seed)
    expected = narrowed(replay(program, schedule), program.steps)
    written = rewritten(model, schedule, program)

    gt.save(written, tmp_path / "again.onnx")
    again = flatten(gt.load(tmp_path / "again.onnx"))

    assert shape_of(flatten(written)) == shape_of(expected)
    assert no_recompute(again).peak == no_recompute(expected).peak


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", GRAPHS)
def test_no_bit_changes(name, seed):
    model = trained(name)
    program = flatten(model)
    written = rewritten(model, shuffled(program, seed), program)
    feeds = gt.api.read_inputs(model, "random")

    before, after = gt.run(model, feeds), gt.run(written, feeds, check_arena=True)

    for name_, array in (before.gradients | before.outputs).items():
        assert array.tobytes() == (after.gradients | after.outputs)[name_].tobytes()


def test_a_clone_says_what_it_repeats():
    model = trained("chain")
    program = flatten(model)
    number = {s.name: i for i, s in enumerate(program.steps)}
    tanh = model.graph.node(1).name
    end = next(i for i, s in enumerate(program.steps) if s.stage == "backward")
    order = [*range(end), number[tanh], *range(end, len(program.steps))]
    written = rewritten(model, Schedule.of(order, "_mirror"), program)

    (clone,) = [n for n in written.graph if n.metadata_props["gradtool.stage"] == "recompute"]
    assert clone.name == f"{tanh}_mirror"
    assert clone.outputs[0].name == "b_mirror"
    assert clone.metadata_props["gradtool.source"] == tanh
    assert any("b_mirror" in line for line in lines(written, "backward"))


def test_a_value_that_only_backward_reads_moves_there_under_its_own_name():
    """With its only forward reader run again too, the first instance of e serves nobody."""
    model = trained("chain")
    program = flatten(model)
    order = [0, 1, 2, 3, 2, 3, *range(4, len(program.steps))]
    written = rewritten(model, pruned(program, Schedule.of(order)), program)

    assert [n.name for n in written.graph].count(model.graph.node(2).name) == 1


def test_the_mark_of_a_decision_stands_on_its_node():
    model = trained("chain")
    first, second = (model.graph.node(i).name for i in (0, 1))
    mark(model, {first: False, second: True})

    marks = {n.name: n.metadata_props.get("gradtool.mirror") for n in model.graph}
    assert (marks[first], marks[second]) == ("0", "1")


def test_a_clone_is_placed_where_its_original_is():
    model = trained("chain")
    pair = ModelConfiguration("pair", 2)
    model.device_configurations = (pair,)
    tanh = model.graph.node(1)
    spec = ShardingSpec(tanh.outputs[0], (0, 1))
    tanh.device_configurations = (NodeDeviceConfiguration(pair, (spec,), pipeline_stage=1),)
    program = flatten(model)
    end = next(i for i, s in enumerate(program.steps) if s.stage == "backward")
    order = [*range(end), 1, *range(end, len(program.steps))]
    written = rewritten(model, Schedule.of(order), program)

    (clone,) = [n for n in written.graph if n.metadata_props["gradtool.stage"] == "recompute"]
    (placed,) = clone.device_configurations
    assert placed.pipeline_stage == 1
    assert [s.value for s in placed.sharding_specs] == [clone.outputs[0]]


def test_open_sizes_stay_open():
    """A plan is made for given sizes; the model that carries it runs with others, too."""
    text = CHAIN.replace("float[4, 4] x", "float[N, 4] x")
    model = prepared(gt.grad(parse(text, "w"), loss="sum").model)
    program = flatten(gt.api.bound(model, {"N": 4}))
    written = rewritten(model, shuffled(program, 1), program)

    feeds = {"x": np.linspace(-1, 1, 28, dtype=np.float32).reshape(7, 4)}
    before, after = gt.run(model, feeds), gt.run(written, feeds)

    assert before.gradients["w"].tobytes() == after.gradients["w"].tobytes()


def test_nodes_without_a_name_are_given_one():
    model = trained("chain")
    for node in model.graph:
        node.name = "same"
    names = [n.name for n in prepared(model).graph]

    assert len(set(names)) == len(names)


def test_a_program_of_another_model_is_refused():
    model = trained("chain")

    with pytest.raises(ValueError, match="the model has no node"):
        apply(model, flatten(trained("views")), Schedule.of(()))


def test_a_clone_of_a_step_that_read_a_clone_reads_the_latest_instance():
    """c reads the second instance of a and runs again behind the third."""
    text = """g (float[4] x) => (w, y, z) {
        a = Tanh (x) w = Neg (a) c = Exp (a) y = Neg (c) z = Sin (c)
    }"""
    model = prepared(parse(text))
    program = flatten(model)
    a, w, c, y, z = range(5)
    schedule = Schedule.of((a, w, a, c, y, a, c, z))

    assert lines(rewritten(model, schedule, program))[5:] == [
        "a_recompute_2 = Tanh (x)", "c_recompute = Exp (a_recompute_2)", "z = Sin (c_recompute)",
    ]  # fmt: skip


EARLY = """g (float[N, 4] x, float[1] c) => (y, z) {
    a = Tanh (x) s = Shape (a) e = Expand (c, s) y = Add (a, e) k = Exp (e) z = Neg (k)
}"""


@pytest.mark.parametrize("sizes", ["static", "open"])
def test_what_is_known_before_a_run_is_there_for_steps_that_run_before_its_source(sizes):
    """e is expanded to the shape of a, which is computed behind it."""
    model = prepared(parse(EARLY.replace("[N", "[3") if sizes == "static" else EARLY))
    sized = model if sizes == "static" else gt.api.bound(model, {"N": 3})
    program = flatten(sized)
    a, e, y, k, z = range(5)
    schedule = Schedule.of((e, k, z, a, y))
    written = rewritten(model, schedule, program)
    feeds = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), "c": np.ones(1, "f")}
    bound = written if sizes == "static" else gt.api.bound(written, {"N": 3})

    assert [s.op for s in flatten(bound).steps] == ["Expand", "Exp", "Neg", "Tanh", "Add"]
    for name, array in gt.run(model, feeds).outputs.items():
        assert array.tobytes() == gt.run(written, feeds).outputs[name].tobytes()


def test_a_size_that_is_no_sum_of_those_of_inputs_brings_its_source_forward():
    """Half of N, rounded up in floats, is a number for every N, and the size of b."""
    text = """g (float[N] x, float[1] c) => (y, z) <float two = {2}> {
        n = Shape (x) f = Cast <to = 1> (n) h = Div (f, two) u = Ceil (h) i = Cast <to = 7> (u)
        a = Expand (c, i) b = Tanh (a) s = Shape (b) e = Expand (c, s) y = Add (b, e) z = Neg (e)
    }"""
    model = prepared(parse(text))
    program = flatten(gt.api.bound(model, {"N": 5}))
    a, b, e, y, z = range(5)
    written = rewritten(model, Schedule.of((e, z, a, b, y)), program)
    feeds = {"x": np.zeros(7, np.float32), "c": np.ones(1, np.float32)}

    assert [s.op for s in program.steps] == ["Expand", "Tanh", "Expand", "Add", "Neg"]
    assert lines(written)[5:] == [
        "a = Expand (c, i)", "b = Tanh (a)", "s = Shape (b)", "e = Expand (c, s)", "z = Neg (e)",
        "y = Add (b, e)",
    ]  # fmt: skip
    for name, array in gt.run(model, feeds).outputs.items():
        assert array.shape == (4,)
        assert array.tobytes() == gt.run(written, feeds).outputs[name].tobytes()


# ------------------------------------------------------------------- what is written, in full


def written(text, order, dims=None, stages=None):
    """The lines of a model whose steps run in an order, its nodes, and how many are clones."""
    model = prepared(parse(text))
    for node in model.graph:
        if stages:
            node.metadata_props["gradtool.stage"] = stages
    program = flatten(gt.api.bound(model, dims) if dims else model)
    clones = apply(model, program, pruned(program, Schedule.of(order, "_again")))
    return lines(model), {n.name: n for n in model.graph}, clones


def test_the_order_of_the_file_gives_the_file():
    expected = ["a = Tanh (x)", "s = Shape (a)", "e = Expand (c, s)", "y = Add (a, e)",
                "k = Exp (e)", "z = Neg (k)"]  # fmt: skip

    assert written(EARLY, range(5), {"N": 3})[::2] == (expected, 0)


def test_what_follows_from_inputs_comes_first_and_what_nobody_reads_goes():
    """s and t are known before a run, and t is read by nobody."""
    text = """g (float[N] x, float[1] c) => (y, z) <int64[1] one = {1}> {
        a = Tanh (x) z = Neg (a) s = Shape (x) t = Add (s, one) y = Expand (c, s)
    }"""

    assert written(text, (0, 1, 2), {"N": 3})[0] == [
        "s = Shape (x)", "a = Tanh (x)", "z = Neg (a)", "y = Expand (c, s)"
    ]  # fmt: skip


def test_what_is_known_of_a_later_step_waits_for_all_of_its_sources():
    """s is a sum of sizes of a and of b, both of which run before it is read."""
    text = """g (float[N] x, float[1] c) => (y) {
        a = Tanh (x) b = Exp (x) p = Shape (a) q = Shape (b) s = Max (p, q) y = Expand (c, s)
        z = Add (a, b)
    }""".replace("=> (y)", "=> (y, z)")

    assert written(text, (1, 0, 3, 2), {"N": 3})[0] == [
        "b = Exp (x)", "q = Shape (b)", "a = Tanh (x)", "p = Shape (a)", "s = Max (p, q)",
        "z = Add (a, b)", "y = Expand (c, s)",
    ]  # fmt: skip


def test_a_size_that_is_read_early_is_arithmetic_on_the_sizes_of_inputs():
    text = EARLY.replace("s = Shape (a)", "[sized] s = Shape (a)")
    found, nodes, clones = written(text, (1, 3, 4, 0, 2), {"N": 3})

    assert (found, clones) == ([
        "sized/Shape:0 = Shape (x)", "sized/Concat:0 = Concat (sized/Shape:0, const)",
        "e = Expand (c, sized/Concat:0)", "k = Exp (e)", "z = Neg (k)", "a = Tanh (x)",
        "y = Add (a, e)",
    ], 0)  # fmt: skip
    assert list(nodes)[:2] == ["sized/Shape", "sized/Concat"]
    assert {n: dict(nodes[n].metadata_props) for n in list(nodes)[:3]} == {
        "sized/Shape": {"gradtool.stage": "forward", "gradtool.source": ""},
        "sized/Concat": {"gradtool.stage": "forward", "gradtool.source": ""},
        "Expand": {},
    }


def test_arithmetic_on_sizes_is_of_the_stage_of_what_it_replaces():
    nodes = written(EARLY, (1, 3, 4, 0, 2), {"N": 3}, stages="backward")[1]

    assert {n.metadata_props["gradtool.stage"] for n in nodes.values()} == {"backward"}


def test_a_shape_of_some_axes_is_the_sizes_of_those():
    text = """g (float[N, M, 2] x, float[1] c) => (y, z) {
        a = Tanh (x) s = Shape <start = 1, end = 2> (a) z = Expand (c, s) y = Neg (a)
    }"""
    found = written(text, (1, 0, 2), {"N": 3, "M": 5})[0]

    assert found == [
        "Shape/Shape:0 = Shape (x)", "Shape/Concat:0 = Concat (Shape/Shape:0)",
        "z = Expand (c, Shape/Concat:0)", "a = Tanh (x)", "y = Neg (a)",
    ]  # fmt: skip


def test_a_size_is_told_from_an_input_of_that_size_alone():
    text = """g (float[N] x, float[] c) => (y, z) {
        a = Tanh (x) s = Shape (a) z = Expand (c, s) y = Neg (a)
    }"""

    assert written(text, (1, 0, 2), {"N": 3})[0] == [
        "Shape/Shape:0 = Shape (x)", "Shape/Concat:0 = Concat (Shape/Shape:0)",
        "z = Expand (c, Shape/Concat:0)", "a = Tanh (x)", "y = Neg (a)",
    ]  # fmt: skip


def test_a_known_number_that_is_read_early_is_a_constant():
    found, nodes, _ = written(EARLY.replace("[N", "[3"), (1, 3, 4, 0, 2))
    (const,) = (v for v in nodes["Expand"].inputs[1:])

    assert found == [
        "e = Expand (c, const)", "k = Exp (e)", "z = Neg (k)", "a = Tanh (x)", "y = Add (a, e)"
    ]  # fmt: skip
    assert const.const_value.numpy().tolist() == [3, 4]


VIEWS = """g (float[4, 6] x) => (y, z) <int64[2] flat = {24, 1}> {
    b = Tanh (x) r = Reshape (b, flat) e = Exp (r) f = Neg (e) y = Mul (r, f) z = Exp (b)
}"""


def test_views_follow_the_instances_that_they_are_read_of():
    assert written(VIEWS, (0, 1, 2, 0, 3, 0, 4))[::2] == ([
        "b = Tanh (x)", "r = Reshape (b, flat)", "e = Exp (r)", "f = Neg (e)",
        "b_again = Tanh (x)", "r_again = Reshape (b_again, flat)", "y = Mul (r_again, f)",
        "b_again_2 = Tanh (x)", "z = Exp (b_again_2)",
    ], 3)  # fmt: skip


def test_each_output_of_a_view_follows():
    text = """g (float[4, 6] x) => (y, z) {
        b = Tanh (x) p, q = Split <axis = 0, num_outputs = 2> (b) e = Exp (q) f = Neg (e)
        y = Mul (q, f) z = Mul (p, q)
    }"""

    assert written(text, (0, 1, 2, 0, 3, 4))[::2] == ([
        "b = Tanh (x)", "p, q = Split (b)", "e = Exp (q)", "f = Neg (e)", "b_again = Tanh (x)",
        "p_again, q_again = Split (b_again)", "y = Mul (q_again, f)", "z = Mul (p_again, q_again)",
    ], 2)  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "names", "clones"),
    [("forward", ("r_again", "t_again"), 3), ("backward", ("r", "t"), 1)],
)
def test_a_view_read_of_a_clone_alone_is_a_clone_where_it_is_forward(stage, names, clones):
    """Backward has its own views, which come where they stand; v is one of an input."""
    text = """g (float[4, 6] x) => (y, z) <int64[2] flat = {24, 1}, int64[2] more = {12, 2}> {
        b = Tanh (x) e = Exp (b) r = Reshape (b, flat) t = Reshape (r, more) v = Reshape (x, more)
        y = Mul (t, v) z = Neg (e)
    }"""
    r, t = names

    assert written(text, (0, 1, 0, 2, 3), stages=stage)[::2] == ([
        "b = Tanh (x)", "e = Exp (b)", "b_again = Tanh (x)", f"{r} = Reshape (b_again, flat)",
        f"{t} = Reshape ({r}, more)", "v = Reshape (x, more)", f"y = Mul ({t}, v)", "z = Neg (e)",
    ], clones)  # fmt: skip


def test_a_view_that_is_only_returned_is_written_too():
    text = """g (float[4, 6] x) => (r, z) <int64[2] flat = {24, 1}> {
        b = Tanh (x) r = Reshape (b, flat) z = Exp (b)
    }"""

    assert written(text, (0, 1))[::2] == (
        ["b = Tanh (x)", "z = Exp (b)", "r = Reshape (b, flat)"], 0
    )  # fmt: skip


def test_what_is_left_out_reads_nothing_any_more():
    """r is a view that nobody reads."""
    model = prepared(parse(VIEWS.replace("e = Exp (r)", "e = Exp (b)").replace("(r, f)", "(b, f)")))
    program = flatten(model)
    apply(model, program, Schedule.of(range(len(program.steps))))
    (b,) = (v for n in model.graph for v in n.outputs if v.name == "b")

    assert "Reshape" not in {n.op_type for n in model.graph}
    assert {use.node.op_type for use in b.uses()} == {"Exp", "Mul"}
    assert all(use.node.graph is model.graph for use in b.uses())
    assert not model.graph.initializers


def test_values_of_a_clone_know_what_those_of_the_original_do():
    model = prepared(parse(VIEWS))
    model.graph.node(0).outputs[0].metadata_props["note"] = "kept"
    program = flatten(model)
    apply(model, program, Schedule.of((0, 1, 2, 0, 3, 4)))
    (clone,) = (n for n in model.graph if n.name == "Tanh_recompute")

    assert clone.outputs[0].metadata_props == {"note": "kept"}
    assert clone.outputs[0].shape == ir.Shape([4, 6])
    assert clone.outputs[0].dtype == ir.DataType.FLOAT


def test_names_in_the_bodies_of_clones_are_their_own():
    model = trained("control")
    program = flatten(model)
    number = {step.op: i for i, step in enumerate(program.steps)}["Loop"]
    order = [*range(number + 2), number, *range(number + 2, len(program.steps))]
    apply(model, program, Schedule.of(order))
    values = [v.name for n in model.graph.all_nodes() for v in n.outputs]
    nodes = [n.name for n in model.graph.all_nodes()]

    assert [n.op_type for n in model.graph].count("Loop") == 2
    assert len(set(values)) == len(values)
    assert len(set(nodes)) == len(nodes)


# ----------------------------------------------------------------------------- preparation


def test_a_prepared_model_is_a_copy_that_knows_what_the_model_did():
    model = parse(CHAIN)
    model.meta["note"] = "kept"
    names = [n.name for n in model.graph]
    made = prepared(model)
    made.graph.node(0).name = "changed"

    assert made.meta["note"] == "kept"
    assert [n.name for n in model.graph] == names


def test_names_of_one_node_stay_and_others_are_made_of_them_or_of_the_operator():
    model = parse(CHAIN)
    for node, name in zip(model.graph, ("one", "one", "", "", "two"), strict=True):
        node.name = name

    assert [n.name for n in prepared(model).graph] == ["one", "one_1", "Exp", "Tanh", "two"]


def test_composites_without_a_kernel_are_prepared_as_their_bodies(monkeypatch):
    find = kernels.find
    monkeypatch.setattr(
        kernels, "find", lambda *asked: None if asked == (DOMAIN, "TanhGrad", 1) else find(*asked)
    )
    model = gt.grad(parse(CHAIN, "w"), loss="sum").model

    assert "TanhGrad" in {n.op_type for n in model.graph}
    assert "TanhGrad" not in {n.op_type for n in prepared(model).graph}

"""A schedule written into a model: the same bits, and the memory that the schedule promised."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from graphs import lines, parse
from onnx_ir import ModelConfiguration, NodeDeviceConfiguration, ShardingSpec

import gradtool as gt
from gradtool.declared import narrowed
from gradtool.flatten import flatten
from gradtool.passes.recompute import apply, mark, prepared
from gradtool.planning.keep import keep
from gradtool.planning.schedule import Schedule, pruned, replay

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
    assert keep(again).peak == keep(expected).peak


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
    for name, array in gt.run(model, feeds).outputs.items():
        assert array.shape == (4,)
        assert array.tobytes() == gt.run(written, feeds).outputs[name].tobytes()

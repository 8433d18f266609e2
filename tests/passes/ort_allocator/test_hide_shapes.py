"""Files with barriers leave sizes open: what that does to a file, over random graphs and forms.

That they run in stock onnxruntime, and right, is what test_stock_files tries.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx_ir as ir
import pytest
from clones import recompute
from conftest import sampled, trials
from graphs import floats, lines, parse
from hypothesis import HealthCheck, Phase, given, settings
from random_graphs import assemble, recipes
from stock_files import _forward_values as forward_values

import gradtool as gt
from gradtool.exec.feeds import defaults
from gradtool.graph import walk
from gradtool.graph.metadata import BARRIER, PLACE
from gradtool.graph.reads import reads
from gradtool.graph.stages import has_barriers
from gradtool.passes.ort_allocator import control_edges
from gradtool.passes.parameters_as_inputs import parameters_as_inputs
from gradtool.workloads.ort_options import session

EXAMPLES = settings(max_examples=trials(10), derandomize=True, database=None, deadline=None,
                    phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
FORMS = ({}, {"functions": True}, {"portable": True}, {"marks": False}, {"defaults": False})
# What onnxruntime 1.32 was seen to write where an operand dies.
WRITTEN_IN_PLACE = {
    "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu", "Selu", "Sigmoid", "Softmax",
    "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
}  # fmt: skip
# Inputs of several types, a scalar and an empty one, and sizes that no input tells.
MIXED = """g (float[BATCH, 6] x, int64[BATCH] t, bool[BATCH, 4] keep, float s, float[0, 4] none,
           float[6, 4] w, float[4] bias) => (float l, float[BATCH, 4] f) {
    size = Constant <value_ints = [SIZE, 4]> ()
    a = MatMul (x, w)
    b = Relu (a)
    ones = ConstantOfShape (size)
    c = Mul (b, s)
    zero = Constant <value_float = 0.0> ()
    d = Where (keep, c, zero)
    e = Concat <axis = 0> (d, none)
    f = Softmax (e)
    g = Expand (bias, size)
    h = Add (f, g)
    i = Mul (h, ones)
    l = SoftmaxCrossEntropyLoss (i, t)
}"""
# A body that makes a window by a shape of constants alone.
LOOP = """g (float[3, 4] x, float[4] w) => (float[3, 4] y) {
    size = Constant <value_ints = [2, 2]> ()
    flat = Constant <value_ints = [4]> ()
    y = Scan <num_scan_inputs = 1, body = b (float[4] row) => (float[4] out) {
        u = Mul (row, w)
        v = Reshape (u, size)
        r = Tanh (v)
        out = Reshape (r, flat)
    }> (x)
    z = Tanh (y)
}"""


def mixed(batch: str) -> ir.Model:
    """`MIXED` of a batch that is a number or open."""
    known = batch if batch.isdigit() else "1"
    return parse(MIXED.replace("BATCH", batch).replace("SIZE", known), "w bias")


def twice(model: ir.Model, **options) -> gt.TrainingGraph:
    """A training graph that computes all of forward twice."""
    training = gt.grad(model, **options)
    return recompute(training.model, forward_values(training.model))


def both(model: ir.Model, folder: Path, **form) -> tuple[Path, Path]:
    """Files without barriers and with, in which every value counts as large."""
    plain, barred = folder / "plain.onnx", folder / "barred.onnx"
    gt.save(model, plain, force=True, **form)
    with patch.object(control_edges, "LARGE", 1):
        gt.save(model, barred, force=True, barrier=True, **form)
    return plain, barred


def declared(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Values inside of a model that have sizes, by node; not those of barriers."""
    for node in walk.nodes(model.graph):
        for value in node.outputs:
            own = BARRIER in node.metadata_props or value.is_graph_output()
            if value.shape and not own:
                yield node, value


def check_names(model: ir.Model) -> int:
    """Sizes are open; names are shared where a value takes an operand's place. How often."""
    places: dict[str, list[tuple[ir.Node, ir.Value]]] = defaultdict(list)
    for node, value in declared(model):
        assert not value.shape.is_static(), f"the sizes of {value.name} are known"
        names = [d.value for d in value.shape if isinstance(d, ir.SymbolicDim) and d.value]
        assert len(names) in (0, len(value.shape))
        if names:
            place, axes = names[0].rsplit(".", 1)[0], [n.rsplit(".", 1)[1] for n in names]
            assert place.startswith(PLACE)
            assert axes == [str(i) for i in range(len(names))]
            places[place].append((node, value))
    order = {node: index for index, node in enumerate(walk.nodes(model.graph))}
    shared = 0
    for values in places.values():
        for (_, before), (node, _) in itertools.pairwise(values):
            assert node.op_type in WRITTEN_IN_PLACE
            assert node.inputs[0] is before
            readers = [n for n in walk.nodes(model.graph) if before in reads(n)]
            assert max(readers, key=order.__getitem__) is node
            shared += 1
    return shared


def check_file(model: ir.Model, folder: Path, **form) -> int:
    """What is read back is what would be without barriers, its plan and its weights, too."""
    plain, barred = both(model, folder, **form)
    written = ir.load(barred)
    if not has_barriers(written):
        return 0
    shared = check_names(written)
    if form.get("functions"):  # kernels of ours run those: bodies are not what is compared
        return shared
    mine, other = gt.load(barred), gt.load(plain)
    assert lines(mine) == lines(other)
    assert _weights(mine) == _weights(other)
    assert [_declaration(v) for v in mine.graph.inputs] == [
        _declaration(v) for v in other.graph.inputs
    ]
    dims = {"batch": 3} if "batch" in str(mine.graph.inputs) else {}
    assert gt.plan(mine, dims=dims).buffers == gt.plan(other, dims=dims).buffers
    return shared


def _run(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All outputs in stock onnxruntime; what is not fed has a default."""
    pytest.importorskip("onnxruntime")
    opened = session(str(path), {})
    known = {**defaults(ir.load(path)), **feeds}
    names = [o.name for o in opened.get_outputs()]
    found = opened.run(names, {i.name: known[i.name] for i in opened.get_inputs()})
    return dict(zip(names, found, strict=True))


def _weights(model: ir.Model) -> dict[str, bytes]:
    found = model.graph.initializers.items()
    return {n: v.const_value.tobytes() for n, v in found if v.const_value is not None}


def _declaration(value: ir.Value) -> tuple[str, str, str]:
    return value.name, str(value.type), str(value.shape)


@pytest.mark.exhaustive
@EXAMPLES
@given(recipe=recipes(most=20))
def test_random_graphs_are_read_back_as_they_were(recipe, tmp_path_factory):
    model = twice(assemble(recipe, np.float32), loss=recipe.loss)

    for form in FORMS:
        check_file(model, tmp_path_factory.mktemp("file"), **form)


@pytest.mark.sample(9, 2.5)
@pytest.mark.parametrize("form", sampled(FORMS), ids=str)
@pytest.mark.parametrize("batch", ["3", "batch"])
@pytest.mark.parametrize(
    ("options", "pure"),
    [({}, False), ({"optimizer": "adamw"}, True), ({"input_grad": ["x", "s"]}, False)],
    ids=str,
)
def test_inputs_of_all_kinds(batch, options, pure, form, tmp_path):
    model = twice(mixed(batch), loss="l", **options)
    held = parameters_as_inputs(model) if pure else {}
    feeds = {
        "x": floats(3, 6), "t": np.array([1, 3, 0]), "keep": floats(3, 4) > 0,
        "s": np.array(1.5, np.float32), "none": np.zeros((0, 4), np.float32),
        **{name: tensor.numpy() for name, tensor in held.items()},
    }  # fmt: skip

    check_file(model, tmp_path, **form)

    assert has_barriers(ir.load(tmp_path / "barred.onnx"))
    plain, barred = (_run(tmp_path / f"{n}.onnx", feeds) for n in ("plain", "barred"))
    assert barred.keys() == plain.keys()
    for name, array in plain.items():
        np.testing.assert_allclose(barred[name], array, rtol=1e-5, atol=1e-7, err_msg=name)


def test_bodies_hide_shapes_too(tmp_path):
    _, barred = both(twice(parse(LOOP, "w"), loss="sum:z"), tmp_path)

    model = ir.load(barred)

    check_names(model)
    told = [n for n in walk.nodes(model.graph) if n.op_type == "Reshape"
            and BARRIER not in n.metadata_props]  # fmt: skip
    assert told
    assert not any(v.is_initializer() for n in told for v in n.inputs[1:])


def test_what_is_written_in_place_keeps_the_name_of_its_operand(tmp_path):
    text = """g (float[5, 4] x, float[4, 4] w) => (float[5, 4] y) {
        a = MatMul (x, w) b = Tanh (a) c = MatMul (b, w) d = Relu (c) y = Add (d, c)
    }"""

    assert check_file(twice(parse(text, "w"), loss="sum"), tmp_path) > 0


def test_small_values_have_no_names(tmp_path):
    model = twice(parse(LOOP, "w"), loss="sum:z")
    gt.save(model, tmp_path / "m.onnx", barrier=True)

    names = {d.value for _, v in declared(ir.load(tmp_path / "m.onnx")) for d in v.shape}

    assert names == {None}


def test_files_without_barriers_keep_their_sizes(tmp_path):
    training = gt.grad(mixed("3"), loss="l")
    gt.save(training, tmp_path / "m.onnx", barrier=True)

    found = list(declared(ir.load(tmp_path / "m.onnx")))

    assert all(v.shape.is_static() for _, v in found)

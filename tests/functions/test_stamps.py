"""What is stamped is what would have been emitted: gradients of nodes, and bodies of calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from conftest import trials
from graphs import parse
from hypothesis import given, settings
from hypothesis import strategies as st
from many_sizes import made
from random_graphs import Recipe, assemble, recipes

import gradtool as gt
from gradtool.emit.reads import Reads
from gradtool.ops.composites import emission_cache as stamps
from gradtool.ops.composites.calls import inline

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "samples").glob("*.onnx"))
LAYERS = """g (float[batch, 8] x, float[8] s, float[8] b) => (float loss) {
    n0 = LayerNormalization (x, s, b)  t0 = Tanh (n0)
    n1 = LayerNormalization (t0, s, b) t1 = Tanh (n1)
    n2 = LayerNormalization (t1, s, b) t2 = Tanh (n2)
    loss = ReduceMean <keepdims = 0> (t2)
}"""


def written(model: ir.Model) -> bytes:
    inline(model)
    return ir.serde.serialize_model(model).SerializeToString(deterministic=True)


def both(model: ir.Model) -> tuple[bytes, bytes]:
    """A training graph that is stamped, and one of which everything is emitted by itself."""
    stamped = written(gt.grad(model).model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stamps.Stamps, "_key", lambda *_: None)
        return stamped, written(gt.grad(model).model)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_samples_are_the_same(path):
    stamped, emitted = both(gt.load(path))

    assert stamped == emitted


@pytest.mark.exhaustive
@settings(max_examples=trials(40), deadline=None)
@given(recipes(most=12))
def test_random_graphs_are_the_same(recipe: Recipe):
    stamped, emitted = both(assemble(recipe, np.float32))

    assert stamped == emitted


def test_the_layers_of_a_model_are_emitted_once(monkeypatch):
    put = []
    real = stamps.Stamps._put
    monkeypatch.setattr(stamps.Stamps, "_put", lambda *args: put.append(args[1]) or real(*args))
    stamped, emitted = both(parse(LAYERS, weights="s b"))

    assert stamped == emitted
    assert [[step.op_type for step in stamp.steps] for stamp in put].count(["TanhGrad"]) == 2


# Of `x` [n, 4, w], by what they read: constants that both halves share, or have of their own.
TEMPLATES = {
    "Slice": ("Slice ({x}, {c}a, {c}b, {c}i)", {"a": [1], "b": [2**60], "i": [2]}),
    "Slice back": (
        "Slice ({x}, {c}a, {c}b, {c}i, {c}s)", {"a": [-1], "b": [-(2**63)], "i": [-1], "s": [-2]}
    ),
    "Pad": ("Pad <mode = 'reflect'> ({x}, {c}p)", {"p": [0, 1, 1, 0, 0, 1]}),
    "Gather": ("Gather <axis = 2> ({x}, {c}i)", {"i": [0, -1, 1]}),
    "Tile": ("Tile ({x}, {c}r)", {"r": [1, 2, 3]}),
    "ReduceMax": ("ReduceMax <keepdims = 1> ({x}, {c}a)", {"a": [2]}),
    "Softmax": ("Softmax <axis = 1> ({x})", {}),
    "CumSum": ("CumSum ({x}, {c}a)", {"a": [2]}),
    "MaxPool": ("MaxPool <kernel_shape = [2]> ({x})", {}),
    "AveragePool": ("AveragePool <kernel_shape = [2], ceil_mode = 1, strides = [2]> ({x})", {}),
    "LpPool": ("LpPool <kernel_shape = [2]> ({x})", {}),
    "ReduceProd": ("ReduceProd <keepdims = 0> ({x}, {c}a)", {"a": [1]}),
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=4, deadline=None)
@given(
    widths=st.tuples(st.integers(2, 5), st.integers(2, 5)),
    shared=st.booleans(),
    batch=st.sampled_from(["n", "3"]),
)
def test_two_that_differ_in_a_known_size_are_the_same(name, widths, shared, batch):
    call, constants = TEMPLATES[name]
    lines, weights = [], []
    for k, width in enumerate(widths):
        own = "" if shared else f"c{k}"
        lines.append(f"x{k} = MatMul (x, w{k})")
        lines.append(f"s{k} = {call.format(x=f'x{k}', c=own)}".replace("'", '"'))
        lines.append(f"t{k} = ReduceSum <keepdims = 0> (s{k})")
        weights.append(f"float[6, {width}] w{k} = {{{', '.join(['0.5'] * 6 * width)}}}")
        weights += [
            f"int64[{len(v)}] {own}{c} = {{{', '.join(map(str, v))}}}"
            for c, v in constants.items()
            if not k or not shared
        ]
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float[{batch}, 4, 6] x) => (float loss) <{", ".join(weights)}>
        {{ {"  ".join(lines)} loss = Add (t0, t1) }}"""
    )

    stamped, emitted = both(gt.load(model))

    onnx.checker.check_model(onnx.load_from_string(stamped), full_check=True)
    assert stamped == emitted


def test_few_emissions_are_recorded_where_each_asks_for_a_size_of_its_own(monkeypatch):
    """Each gradient of a Concat asks where the size of its input stands."""
    recorded = []

    class Counted(Reads):
        def of(self, node):
            recorded.append(node.op_type)
            return super().of(node)

    monkeypatch.setattr(stamps, "Reads", Counted)
    gt.grad(gt.load(made("chain", 60)))

    assert 0 < recorded.count("Concat") < 30

"""Saving less changes no bit of a gradient and never raises the planned peak."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import trials
from graphs import floats, lines, parse
from hypothesis import given, settings
from many_sizes import made
from random_graphs import Recipe, assemble, recipes
from staged import hoisted, saved_less, staged

import gradtool as gt
from gradtool.exec.feeds import sizes
from gradtool.graph.stages import is_hoisted
from gradtool.io import symbols
from gradtool.passes.residuals import residuals
from gradtool.program.bind_dims import bound
from gradtool.workloads import save_less as saving

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "samples").glob("*.onnx"))


def sample(path: Path) -> tuple[gt.TrainingGraph, gt.TrainingGraph, dict[str, np.ndarray]]:
    """Without and with less saved, all sizes known, and the inputs."""
    with np.load(path.with_suffix(".npz")) as loaded:
        feeds = dict(loaded)
    forward = gt.load(path)
    forward = bound(forward, sizes(forward, feeds))
    return gt.grad(forward, save_less=False), gt.grad(forward), feeds


def same_bits(plain: gt.TrainingGraph, less: gt.TrainingGraph, feeds: dict) -> None:
    expected, actual = (gt.run(each, feeds, kernels="numpy") for each in (plain, less))

    assert expected.gradients.keys() == actual.gradients.keys()
    for kind in ("gradients", "outputs"):
        for name, array in getattr(expected, kind).items():
            assert array.tobytes() == getattr(actual, kind)[name].tobytes(), name
    assert actual.plan.total <= expected.plan.total


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_samples_keep_their_bits_and_no_more_memory(path):
    plain, less, feeds = sample(path)

    assert residuals(less.model).bytes <= residuals(plain.model).bytes
    same_bits(plain, less, {n: a for n, a in feeds.items() if n in _inputs(plain)})


def _inputs(training: gt.TrainingGraph) -> set[str]:
    return {v.name for v in training.model.graph.inputs}


@settings(max_examples=trials(25), deadline=None)
@given(recipes(most=25))
def test_random_graphs_keep_their_bits_and_no_more_memory(recipe: Recipe):
    model = assemble(recipe, np.float32)
    options = {"loss": "loss", "wrt": [*recipe.weights], "input_grad": [*recipe.inputs]}
    plain, less = (gt.grad(model, save_less=s, **options) for s in (False, True))
    feeds = {name: array.astype(np.float32) for name, array in recipe.inputs.items()}

    assert residuals(less.model).bytes <= residuals(plain.model).bytes
    same_bits(plain, less, feeds)


@pytest.mark.parametrize("shape", ["4, 8", "N, 4"])
def test_what_would_raise_the_peak_stays_as_it_was(shape):
    """A mask saves 96 bytes, also at the size that N is assumed to have.

    The constants and the product in backward take more.
    """
    text = f"""g (float[{shape}] x) => (y) {{
        h = Neg (x) r = LeakyRelu <alpha = -0.5> (h) y = Neg (r)
    }}"""
    options = {"head_grads": True, "input_grad": ["x"]}
    plain = gt.grad(parse(text), save_less=False, **options)
    after = gt.grad(parse(text), **options)

    assert hoisted(saved_less(plain.model, any_peak=True))
    assert lines(after.model) == lines(plain.model)


def test_moves_that_raise_the_peak_do_not_hold_back_others():
    """The peak is where a and b have been laid out wide; forward reads them again after that.

    To compare a and b before is one more value there, to compare p and q is not.
    """
    text = f"""g (float[64, 512] x, float[64, 512] g) => (y, dx) {{
        a = Exp (x) b = Tanh (x) c = Concat <axis = 0> ({", ".join(["a"] * 8)})
        d = Concat <axis = 0> ({", ".join(["b"] * 8)}) e = Add (c, d) f = ReduceSum (e)
        k = Add (a, b) p = Exp (k) q = Tanh (k) r = Add (p, q) y = Add (r, f)
        n = Greater (p, q) dn = Where (n, g, x) m = Greater (a, b) dx = Where (m, dn, x)
    }}"""
    model = staged(text, "a b c d e f k p q r y")
    after = saved_less(model)

    assert hoisted(saved_less(model, any_peak=True)) == ["m", "n"]
    assert hoisted(after) == ["n"]
    assert gt.plan(after).total <= gt.plan(model).total


def test_a_file_keeps_what_moved_and_the_peak(tmp_path):
    text = """g (float[64, 256] x, float[256] w) => (y) {
        h = Mul (x, w) r = Relu (h) s = Add (r, x) t = Tanh (s) y = ReduceMean <keepdims = 0> (t)
    }"""
    made = gt.grad(parse(text, "w"), loss="y")
    gt.save(made, tmp_path / "g.onnx")
    loaded = gt.load(tmp_path / "g.onnx")
    feeds = {"x": floats(64, 256, seed=3)}

    assert hoisted(made.model)
    assert len(hoisted(loaded)) == len(hoisted(made.model))
    assert gt.plan(loaded).total == gt.plan(made).total
    expected = gt.run(made, feeds).gradients
    for name, array in gt.run(loaded, feeds).gradients.items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["chain", "pooled", "added", "several"])
def test_moves_of_sizes_alone_move_no_byte_and_are_not_weighed(kind, monkeypatch):
    graph = gt.load(made(kind, 8))
    weighed = saving.Scale(gt.grad(graph, save_less=False).model, dict.fromkeys(symbols(graph), 3))
    monkeypatch.setattr(saving, "Scale", None)
    less = gt.grad(graph).model

    assert {n.op_type for n in less.graph if is_hoisted(n)} > {"Shape"}
    assert weighed.heavier(less) is None


def test_moves_of_sizes_that_only_data_tells_are_weighed(monkeypatch):
    text = """g (float[N, 4] x, float[N, 4] g) => (y, dx) {
        i = NonZero (x) t = Transpose (i) c = Cast <to = 1> (t) e = ReduceSum (c) y = Add (x, e)
        s = Shape (t) p = ReduceProd <keepdims = 0> (s) f = Cast <to = 1> (p) dx = Mul (g, f)
    }"""
    model = staged(text, "i t c e y")
    monkeypatch.setattr(saving, "Scale", None)

    with pytest.raises(TypeError):
        saved_less(model)

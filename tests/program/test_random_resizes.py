"""Random models at random sizes: a program that follows from a neighbour's is the model's own."""

import numpy as np
import pytest
from conftest import build
from native_calls import needs_library
from symbolic_models import case

import gradtool as gt
from gradtool.planning.no_recompute import no_recompute, resized
from gradtool.program import unpriced
from gradtool.program.bind_dims import bound
from gradtool.program.flatten import flatten, flattened
from gradtool.program.resize import Resizing, is_same

LAYERS = (
    "MatMul ({0}, w)", "Add ({0}, b)", "Mul ({0}, {1})", "Add ({0}, {1})", "Gelu ({0})",
    "Tanh ({0})", "Sub ({1}, {0})", "LayerNormalization ({0}, gain)", "Softmax ({0})",
    "Sigmoid ({0})", "Max ({0}, {1})", "Where (mask, {0}, {1})",
)  # fmt: skip
MIXED = """
    t{n} = Transpose <perm = [0, 2, 1]> ({0})
    s{n} = MatMul ({0}, t{n})
    p{n} = Softmax (s{n})
    v{n} = MatMul (p{n}, {1})"""
ROWS = """
    r{n} = Reshape ({0}, rows)
    m{n} = MatMul (r{n}, w)
    v{n} = Reshape (m{n}, whole)"""
FEWER = """
    l{n} = ReduceMean <keepdims = 1> ({0}, first)
    v{n} = Sub ({1}, l{n})"""


def network(seed):
    """Layers over `[batch, length, 8]`: attention, norms, rows, elementwise ones read often."""
    rng = np.random.default_rng(seed)
    values, lines = ["x"], ["whole = Shape (x)", "mask = Greater (x, nought)"]
    for n in range(int(rng.integers(4, 14))):
        kind = rng.integers(8)
        text = {0: MIXED, 1: ROWS, 2: FEWER}.get(int(kind), f"v{{n}} = {rng.choice(LAYERS)}")
        lines.append(text.format(values[-1], str(rng.choice(values)), n=n))
        values.append(f"v{n}")
    lines.append(f"z = Add (x, {values[-1]})")
    lines.append("y = MatMul (z, w)")
    header = "net (float[batch, length, 8] x) => (float[batch, length, 8] y)"
    weights = {n: rng.standard_normal(s).astype(np.float32) / 4
               for n, s in {"w": (8, 8), "b": (8,), "gain": (8,)}.items()}  # fmt: skip
    weights |= {"rows": np.array([-1, 8]), "first": np.array([1]), "nought": np.float32(0)}
    return build(f"{header} {{ {chr(10).join(lines)} }}", **weights)


def batches(seed):
    """A training graph, and batches of sizes that are near each other, or equal others."""
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        made = case(seed)
        return made.model, [made.batch(seed + i) for i in range(5)]
    sizes = [tuple(rng.integers(9, 20, 2).tolist())]
    sizes += [tuple(rng.integers(2, 40, 2).tolist()) for _ in range(4)]
    sizes += [(8, sizes[0][1]), (sizes[0][0], 8), (8, 8), (300, 41)]
    draw = [rng.standard_normal((*each, 8)).astype(np.float32) for each in sizes]
    return network(seed), [{"x": x} for x in draw]


def sizes_of(model, batch):
    found = {}
    for value in model.graph.inputs:
        for dim, size in zip(
            value.shape, getattr(batch.get(value.name), "shape", ()), strict=False
        ):
            if not isinstance(dim, int):
                found[dim.value] = size
    return found


@pytest.mark.sample(4, 2)
@pytest.mark.parametrize("seed", range(60))
def test_programs_and_plans_are_those_of_the_model_alone(seed):
    proto, given = batches(seed)
    model = gt.grad(gt.load(proto), loss="mean:y", optimizer="adamw").model
    first, *others = [sizes_of(model, batch) for batch in given]
    kernels = ("exact", "numpy", "native")[seed % 3 if seed % 5 else 0]
    flat, program = flattened(bound(model, first), first, kernels=kernels)
    form = Resizing.of(model, flat, program, first, kernels)
    if form is None:
        assert seed % 3 == 0  # sizes of images are no polynomials
        return
    plan, followed = no_recompute(form.program), 0
    for dims in others:
        found = form.at(dims)
        if found is None:
            continue
        followed += 1
        alone = unpriced(flatten(bound(model, dims), dims=dims, kernels=kernels))
        assert is_same(found.program, alone), dims
        if found.is_alike:
            assert resized(plan, found.program) == no_recompute(found.program), dims
    assert followed or seed % 3 == 0


@needs_library
@pytest.mark.sample(6, 3)
@pytest.mark.parametrize("seed", range(60))
def test_bits_are_those_of_sizes_that_nothing_came_before(seed, monkeypatch):
    proto, given = batches(seed)
    model = gt.grad(gt.load(proto), loss="mean:y", optimizer="adamw").model

    def stepped():
        with gt.Session(model, kernels="native") as session:
            losses = [session.step(batch | {"lr": 0.01}).loss for batch in (*given, *given)]
            peaks = [plan.peak for plan in session.plans]
            assert session.arena_bytes == max(peaks)
            return losses, session.values(), peaks

    losses, values, peaks = stepped()
    monkeypatch.setattr(Resizing, "of", classmethod(lambda *_: None))
    expected, weights, alone = stepped()
    np.testing.assert_array_equal(losses, expected)
    assert peaks == alone
    for name, value in values.items():
        np.testing.assert_array_equal(value, weights[name], err_msg=name)

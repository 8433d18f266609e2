"""`--verify ort` lets right gradients pass at kinks and where rounding is rough, no wrong one."""

import numpy as np
import pytest
from conftest import build, sampled

import gradtool as gt
from gradtool.errors import GradtoolError
from gradtool.exec import ort_agreement
from gradtool.exec.run import execute
from gradtool.exec.verify import checked
from gradtool.workloads.opening import load

pytest.importorskip("onnxruntime")
KINKS = {
    "Relu": "z = Relu (h)",
    "Abs": "z = Abs (h)",
    "Clip": "z = Clip (h, lo, hi)",
    "MaxPool": "u = Unsqueeze (h, one)\n p = MaxPool <kernel_shape = [4], strides = [2]> (u)\n"
               " z = Squeeze (p, one)",
    "ReduceMax": "z = ReduceMax (h, one)",
    "TopK": "z, places = TopK (h, three)",
    "Max": "g = Neg (h)\n z = Max (h, g)",
    "Sign": "s = Sign (h)\n z = Mul (h, s)",
    "LeakyRelu": "z = LeakyRelu (h)",
    "PRelu": "z = PRelu (h, slope)",
}  # fmt: skip
EDGES = {"lo": np.float32(-0.0), "hi": np.float32(1), "one": np.array([1]),
         "three": np.array([3]), "slope": np.full(8, 0.2, np.float32)}  # fmt: skip


def model(op, count=6, inner=256):
    """A product whose terms cancel: the order of the sum decides on which side of a kink it is."""
    rng = np.random.default_rng(0)
    half, x = rng.standard_normal((inner // 2, 8)), rng.standard_normal((count, inner // 2))
    order = rng.permutation(inner)
    w, x = np.concatenate([half, half])[order], np.concatenate([x, -x], 1)[:, order]
    body = f"""g (float[{count}, {inner}] x) => (float loss) {{
        f = MatMul (x, w)
        h = Add (f, b)
        {KINKS[op]}
        q = Mul (z, z)
        e = Add (q, z)
        loss = ReduceSum <keepdims = 0> (e)
    }}"""
    held = {n: a for n, a in EDGES.items() if n in KINKS[op]}
    proto = build(body, w=w.astype(np.float32), b=np.zeros(8, np.float32), **held)
    return proto, {"x": x.astype(np.float32)}


@pytest.mark.sample(2, 2)
@pytest.mark.parametrize("op", sampled(KINKS, 5))
def test_right_gradients_pass_at_kinks(op):
    proto, arrays = model(op)

    assert "rounding decides at a kink" in checked(
        gt.grad(load(proto)).model, arrays, "ort", "numpy"
    )


def wrong(monkeypatch, factor):
    """Let onnxruntime find our own gradients but for one, as by a kernel of ours that is wrong."""

    def found(model, arrays, names):
        theirs = dict(execute(model, dict(arrays)).gradients)
        theirs["w"] = theirs["w"] * np.asarray(factor, theirs["w"].dtype)
        return {name: theirs[name] for name in names}

    monkeypatch.setattr(ort_agreement, "_theirs", found)


@pytest.mark.parametrize("op", KINKS)
def test_wrong_ones_fail_beside_kinks_as_well(op, monkeypatch):
    proto, arrays = model(op)
    wrong(monkeypatch, 1.05)

    with pytest.raises(GradtoolError, match=r"the gradient of .* differs from onnxruntime's"):
        checked(gt.grad(load(proto)).model, arrays, "ort")


ROUGH = """g ({0}[{1}, 16] x) => ({0}[{1}, 4] y) {{
    h = MatMul (x, w)
    t = Tanh (h)
    y = MatMul (t, v)
}}"""


def rough(dtype, count):
    rng = np.random.default_rng(1)
    kind = np.float16 if dtype == "float16" else np.float32
    held = {"w": rng.standard_normal((16, 16)).astype(kind), "v": rng.standard_normal((16, 4))}
    held["v"] = held["v"].astype(kind)
    x = (1e2 + rng.standard_normal((count, 16))).astype(kind)
    return build(ROUGH.format(dtype, count), **held), {"x": x / kind(64)}


SUMS = [("float", 200_000), ("float16", 64)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dtype", "count"), SUMS)
def test_rounding_of_sums_and_of_16_bits_is_none_of_a_formula(dtype, count):
    proto, arrays = rough(dtype, count)

    assert "agree" in checked(gt.grad(load(proto), loss="sum:y").model, arrays, "ort")


@pytest.mark.parametrize(("dtype", "count"), SUMS)
def test_a_wrong_formula_is_more_than_rounding(dtype, count, monkeypatch):
    proto, arrays = rough(dtype, count)
    wrong(monkeypatch, 1.5)

    with pytest.raises(GradtoolError, match="'w' differs"):
        checked(gt.grad(load(proto), loss="sum:y").model, arrays, "ort")

"""Optimizers by the side of others: parameters of random shapes under random gradients.

The gradient of each parameter `p0`, `p1`, … is the input `g0`, `g1`, … itself: the loss is the sum
of their products.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

import gradtool as gt
from gradtool.exec import feeds
from gradtool.ops.composites.calls import inline
from gradtool.shapes import infer
from gradtool.shapes.inference import register_shapes

STEPS = 100
Arrays = dict[str, np.ndarray]


def shapes(seed: int, most: int = 4) -> list[tuple[int, ...]]:
    """Shapes of all ranks up to four; a tall, a wide and a square matrix among them."""
    rng = np.random.default_rng(seed)
    drawn = [tuple(int(n) for n in rng.integers(1, 6, size=rank)) for rank in range(most + 1)]
    a, b = sorted(int(n) for n in rng.choice(np.arange(2, 9), 2, replace=False))
    return [*drawn, (a, b), (b, a), (a, a)]


def model(sizes: Sequence[tuple[int, ...]], dtype: str, seed: int = 0) -> ir.Model:
    """The sum of all products of parameters and inputs."""
    register_shapes()
    rng = np.random.default_rng([seed, 1])
    kind = {"float64": "double", "float32": "float", "float16": "float16"}[dtype]
    inputs = ", ".join(
        f"{kind}{list(s) if s else ''} {what}{i}" for i, s in enumerate(sizes) for what in "gp"
    )
    terms = "".join(
        f" m{i} = Mul (p{i}, g{i}) s{i} = ReduceSum <keepdims = 0> (m{i})"
        for i in range(len(sizes))
    )
    total = ", ".join(f"s{i}" for i in range(len(sizes)))
    header = '<ir_version: 10, opset_import: ["" : 20]>'
    made = ir.from_onnx_text(f"{header} g ({inputs}) => ({kind} y) {{{terms} y = Sum ({total}) }}")
    for value in [v for v in made.graph.inputs if (v.name or "").startswith("p")]:
        made.graph.inputs.remove(value)
        array = np.asarray(rng.standard_normal(value.shape.numpy()), dtype)
        value.const_value = ir.Tensor(array, name=value.name)
        made.graph.register_initializer(value)
    infer(made)
    return made


def gradients(sizes: Sequence[tuple[int, ...]], seed: int, dtype: str) -> Iterator[Arrays]:
    """Those of each step: of very different sizes, some of them zero."""
    rng = np.random.default_rng([seed, 2])
    for step in range(STEPS):
        scale = 10.0 ** rng.uniform(-3, 1)
        yield {
            f"g{i}": np.asarray(
                rng.standard_normal(s) * scale * (rng.random(s) > 0.1) * (step % 17 != 5), dtype
            )
            for i, s in enumerate(sizes)
        }


def state_of(training: ir.Model) -> dict[str, str]:
    """Parameters and state, and their next values."""
    return json.loads(training.metadata_props["gradtool.state"])


def ours(training: gt.TrainingGraph, steps: Iterator[Arrays], **numbers: float) -> Arrays:
    """Parameters and state after some steps of a session."""
    with gt.Session(training) as session:
        for batch in steps:
            session.step(batch | numbers)
        return session.values()


def in_stock(training: gt.TrainingGraph, steps: Iterator[Arrays]) -> Arrays:
    """The same in stock onnxruntime."""
    import onnxruntime as ort

    written = training.model.clone()
    inline(written)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        ir.to_proto(written).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = state_of(training.model)
    feed = feeds.defaults(training.model)
    for batch in steps:
        found = session.run(list(names.values()), feed | batch)
        feed |= dict(zip(names, found, strict=True))
    return {name: feed[name] for name in names}


def apart(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """How far arrays are apart, beside their size."""
    return max(
        float(np.max(np.abs(found[n] - e), initial=0) / max(np.max(np.abs(e), initial=0), 1e-30))
        for n, e in expected.items()
    )

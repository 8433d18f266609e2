"""Gradients of recurrent operators and attention where batch and lengths are not known yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from cases import Case, Floats
from checkers import build, evaluate

from gradtool.emit.builder import Builder
from gradtool.ops.composites.calls import inline
from gradtool.ops.driver import differentiate

HIDDEN, SIZES = 4, {"batch": 3, "time": 5, "keys": 6}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(op: str, *, lens: bool = False, **attributes: Any) -> tuple[Case, list[Any]]:
    both = 2 if attributes.get("direction") == "bidirectional" else 1
    rows, batch = GATES[op] * HIDDEN, SIZES["batch"]
    state = [both, batch, HIDDEN]
    shapes = [
        [SIZES["time"], batch, 2], [both, rows, 2], [both, rows, HIDDEN], [both, 2 * rows], None,
        state,
    ]  # fmt: skip
    names: list[Any] = [["time", "batch", 2], None, None, None, None, [both, "batch", HIDDEN]]
    inputs: list[Any] = [None if s is None else Floats(tuple(s)) for s in shapes]
    if lens:
        inputs[4] = np.asarray([5, 2, 4], dtype=np.int32)
    return Case(op, tuple(inputs), {"hidden_size": HIDDEN, **attributes}, 1, 22), names


def attention(shapes: list[Any], outputs: int = 1, **attributes: Any) -> tuple[Case, list[Any]]:
    sizes = [None if s is None else tuple(SIZES.get(d, d) for d in s) for s in shapes]
    inputs = tuple(None if s is None else Floats(s) for s in sizes)
    return Case("Attention", inputs, attributes, outputs, 23), shapes


QUERY, KEYS = ["batch", 4, "time", 2], ["batch", 4, "keys", 2]
FEW = ["batch", 2, "keys", 2]
FLAT = [["batch", "time", 8], ["batch", "keys", 4], ["batch", "keys", 4]]
HEADS = {"q_num_heads": 4, "kv_num_heads": 2}
PAST = ["batch", 2, "keys", 2]
CASES = [
    recurrent("LSTM"),
    recurrent("LSTM", lens=True, direction="bidirectional"),
    recurrent("LSTM", direction="reverse"),
    recurrent("GRU", linear_before_reset=1),
    recurrent("GRU", lens=True, direction="reverse"),
    recurrent("RNN", direction="bidirectional"),
    attention([QUERY, KEYS, KEYS]),
    attention([QUERY, KEYS, KEYS], is_causal=1),
    attention([QUERY, KEYS, KEYS, ["batch", 1, "time", "keys"]]),
    attention([QUERY, FEW, FEW, ["time", "keys"]], is_causal=1),
    attention([QUERY, FEW, FEW, ["batch", 4, "time", "keys"]]),
    attention(FLAT, **HEADS),
    attention([*FLAT, None, PAST, PAST], 3, is_causal=1, **HEADS),
]


def shaped(case: Case, names: list[Any]) -> ir.Model:
    """The model of a case, with its sizes forgotten but for their names."""
    model, _ = build(case, np.float32)
    node = model.graph.node("node")
    for value, dims in zip(node.inputs, names, strict=False):
        if dims is not None:
            value.shape = ir.Shape(dims)
    Builder(model).infer(node)
    return model


@pytest.mark.parametrize(("case", "names"), CASES, ids=[c.id for c, _ in CASES])
def test_gradients_with_unknown_sizes_agree_with_known_ones(case, names):
    ort = pytest.importorskip("onnxruntime")
    _, feeds = build(case, np.float32)
    model = shaped(case, names)
    op = Builder(model)
    y = model.graph.outputs[0]
    inputs = list(model.graph.inputs)
    seed = ir.Value(name="c_y0", shape=y.shape, type=y.type)
    model.graph.inputs.append(seed)
    found = differentiate(op, {y: seed}, inputs)
    model.graph.outputs.extend(found.gradients.values())
    feeds["c_y0"] = np.random.default_rng(3).normal(
        size=evaluate(shaped(case, names), feeds)["y0"].shape
    ).astype(np.float32)  # fmt: skip
    ours = evaluate(model, feeds)
    inline(model)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    known = {i.name for i in session.get_inputs()}
    theirs = session.run(None, {k: v for k, v in feeds.items() if k in known})

    for value, expected in zip(session.get_outputs(), theirs, strict=True):
        np.testing.assert_allclose(ours[value.name], expected, rtol=3e-4, atol=3e-5)

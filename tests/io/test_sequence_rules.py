"""Operands of attention and recurrent networks, one size of which is off: refused as they run."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import gradtool as gt
from gradtool.errors import ModelError
from gradtool.io.sequence_rules import GATES

SEEDS = range(60)


def recurrent(random):
    """A node of a recurrent network, and the shapes of its operands that are there."""
    op = str(random.choice(list(GATES)))
    times, batch, inputs, hidden = (int(n) for n in random.integers(1, 4, 4))
    layout, ways = 0, int(random.integers(1, 3))  # onnxruntime has no layout 1
    rows = GATES[op] * hidden
    shapes = {"x": [times, batch, inputs], "w": [ways, rows, inputs], "r": [ways, rows, hidden]}
    extra = {"b": [ways, 2 * rows], "": None, "h": [ways, batch, hidden]}
    if op == "LSTM":
        extra |= {"c": [ways, batch, hidden], "p": [ways, 3 * hidden]}
    given = [n if n and random.random() < 0.7 else "" for n in extra]
    shapes |= {n: extra[n] for n in given if n}
    direction = "bidirectional" if ways == 2 else str(random.choice(["forward", "reverse"]))
    names = ["x", "w", "r", *given]
    while not names[-1]:
        names.pop()
    node = helper.make_node(
        op, names, ["y"], "node", hidden_size=hidden, direction=direction, layout=layout
    )
    return node, shapes, 22


def attention(random):
    """An Attention, flat or not, with groups, a mask, and a past."""
    batch, groups, repeat, queries, keys, past, size, wide = (
        int(n) for n in random.integers(1, 4, 8)
    )
    heads, flat = groups * repeat, random.random() < 0.5
    mask, held = random.random() < 0.5, random.random() < 0.4
    if flat:
        shapes = {"q": [batch, queries, heads * size], "k": [batch, keys, groups * size],
                  "v": [batch, keys, groups * wide]}  # fmt: skip
        options = {"q_num_heads": heads, "kv_num_heads": groups}
    else:
        shapes = {"q": [batch, heads, queries, size], "k": [batch, groups, keys, size],
                  "v": [batch, groups, keys, wide]}  # fmt: skip
        options = {}
    if mask:
        shapes["m"] = [queries, keys + (past if held else 0)]
    outputs = ["y"]
    names = ["q", "k", "v", "m" if mask else ""]
    if held:
        shapes |= {"pk": [batch, groups, past, size], "pv": [batch, groups, past, wide]}
        names += ["pk", "pv"]
        outputs += ["kk", "vv"]
    while not names[-1]:
        names.pop()
    return helper.make_node("Attention", names, outputs, "node", **options), shapes, 23


def model_of(node, shapes, opset):
    inputs = [helper.make_tensor_value_info(n, 1, s) for n, s in shapes.items()]
    outputs = [helper.make_tensor_value_info(n, 1, None) for n in node.output]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def loads(proto):
    try:
        gt.load(proto)
    except ModelError as error:
        return str(error)
    return ""


def runs(proto, shapes):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    feeds = {n: np.zeros(s, np.float32) for n, s in shapes.items()}
    try:
        session = ort.InferenceSession(proto.SerializeToString(), options)
        session.run(None, feeds)
    except Exception:  # noqa: BLE001 - whatever it says, it does not run
        return False
    return True


@pytest.mark.parametrize("draw", [recurrent, attention])
def test_what_fits_loads_and_what_onnxruntime_runs_is_never_refused(draw):
    pytest.importorskip("onnxruntime")
    refused = missed = 0
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        node, shapes, opset = draw(random)
        proto = model_of(node, shapes, opset)
        assert not loads(proto), (seed, node, shapes, loads(proto))
        name = str(random.choice(list(shapes)))
        axis = int(random.integers(len(shapes[name])))
        odd = {n: list(s) for n, s in shapes.items()}
        odd[name][axis] += int(random.choice([1, 2]))
        proto = model_of(node, odd, opset)
        said, ran = loads(proto), runs(proto, odd)
        assert not (said and ran), (seed, said, node, odd)
        refused += bool(said)
        missed += not said and not ran

    assert refused > len(SEEDS) // 3
    assert missed <= len(SEEDS) // 10, missed

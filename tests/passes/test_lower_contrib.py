"""Operators of com.microsoft against onnxruntime's own kernels, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import sampled
from onnx import helper
from whole import verified

import gradtool as gt

B, S, N, G, H, P = 2, 5, 4, 2, 16, 3  # batch, length, heads, groups of keys, head size, past
D = N * H


@dataclass(frozen=True)
class Call:
    """A node: shapes of float inputs (None: absent), or arrays; attributes; outputs compared."""

    op: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[int, ...] = (0,)
    note: str = ""
    ort: bool = True  # whether onnxruntime has it on the CPU

    @property
    def id(self) -> str:
        given = ",".join(f"{k}={v}" for k, v in self.attributes.items())
        return f"{self.op}[{given}]{self.note}"


def positions(past: int = 0) -> np.ndarray:
    return np.tile(np.arange(past, past + S), (B, 1))


def table(size: int = H) -> tuple[int, int]:
    return (16, size // 2)


LENGTHS = np.full(B, S - 1, np.int32)
WITH_PAST = np.full(B, S + P - 1, np.int32)
PADDING = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
PADDING_AND_PAST = np.array([[1] * 8, [0, 0, 1, 1, 1, 1, 1, 1]], np.int32)
QKV = ((B, S, D), (B, S, D), (B, S, D))
PAST = ((B, N, P, H), (B, N, P, H))
GROUPED = ((B, S, D), (B, S, G * H), (B, S, G * H))
TOTAL = np.array(S, np.int32)
HEADS = {"num_heads": N}
GROUPS = {"num_heads": N, "kv_num_heads": G}

CALLS = [
    Call("Gelu", ((3, 4),)),
    Call("FastGelu", ((3, 4),)),
    Call("FastGelu", ((3, 4), (4,)), note="bias"),
    Call("BiasGelu", ((3, 4), (4,))),
    Call("QuickGelu", ((3, 4),)),
    Call("QuickGelu", ((3, 4),), {"alpha": 1.0}),
    Call("FusedMatMul", ((2, 3, 4), (2, 4, 5))),
    Call("FusedMatMul", ((2, 4, 3), (2, 5, 4)), {"transA": 1, "transB": 1, "alpha": 0.5}),
    Call("FusedMatMul", ((3, 2, 4), (2, 4, 5)), {"transBatchA": 1}),
    Call("FusedMatMul", ((4, 2, 3), (5, 2, 4)),
         {"transBatchA": 1, "transBatchB": 1, "transA": 1, "transB": 1}),
    Call("SkipLayerNormalization", ((B, S, D), (B, S, D), (D,)), {"epsilon": 1e-5}),
    Call("SkipLayerNormalization", ((B, S, D), (B, S, D), (D,), (D,), (D,)),
         {"epsilon": 1e-5}, (0, 3)),
    Call("SkipLayerNormalization", ((B, S, D), (1, S, D), (D,), (D,)), {"epsilon": 1e-5}, (0, 3)),
    Call("SkipSimplifiedLayerNormalization", ((B, S, D), (B, S, D), (D,)), {"epsilon": 1e-5}),
    Call("SkipSimplifiedLayerNormalization", ((B, S, D), (B, S, D), (D,), (D,)),
         {"epsilon": 1e-5}, (0, 3)),
    Call("::SimplifiedLayerNormalization", ((B, S, D), (D,)), {"epsilon": 1e-5}),
    Call("::SimplifiedLayerNormalization", ((B, S, D), (D,)), {"axis": -1, "stash_type": 1},
         (0, 1)),
    Call("RotaryEmbedding", ((B, N, S, H), positions(), table(), table()), note="by head"),
    Call("RotaryEmbedding", ((B, S, D), positions(1), table(), table())),
    Call("RotaryEmbedding", ((B, S, D), positions(), table(), table()), {"interleaved": 1}),
    Call("RotaryEmbedding", ((B, S, D), np.array([2]), table(), table())),
    Call("RotaryEmbedding", ((B, S, D), positions(), table(4), table(4)),
         {"rotary_embedding_dim": 4, "num_heads": N}),
    Call("RotaryEmbedding", ((B, N, S, H), positions(), table(4), table(4)),
         {"rotary_embedding_dim": 4, "num_heads": N, "interleaved": 1}),
    Call("MultiHeadAttention", QKV, HEADS),
    Call("MultiHeadAttention", QKV, HEADS | {"unidirectional": 1, "scale": 0.5}),
    Call("MultiHeadAttention", (*QKV, (3 * D,)), HEADS),
    Call("MultiHeadAttention", (*QKV, None, PADDING), HEADS),
    Call("MultiHeadAttention", (*QKV, None, np.array([5, 3], np.int32)), HEADS, note="lengths"),
    Call("MultiHeadAttention", (*QKV, None, None, (1, N, S, S)), HEADS),
    Call("MultiHeadAttention", (*QKV, None, PADDING, (B, 1, S, S)), HEADS),
    Call("MultiHeadAttention", (*QKV, None, None, None, *PAST), HEADS, (0, 1, 2)),
    Call("MultiHeadAttention", (*QKV, (3 * D,), PADDING_AND_PAST, None, *PAST), HEADS, (0, 1, 2)),
    Call("MultiHeadAttention", ((B, S, N, 3, H),), HEADS, note="packed", ort=False),
    Call("MultiHeadAttention", ((B, S, D), (B, 7, N, 2, H)), HEADS, note="packed keys", ort=False),
    Call("MultiHeadAttention", ((B, S, D), (B, N, 7, H), (B, N, 7, H)), HEADS, note="projected"),
    Call("GroupQueryAttention", (*GROUPED, None, None, LENGTHS, TOTAL), GROUPS, (0, 1, 2)),
    Call("GroupQueryAttention", (*GROUPED, None, None, LENGTHS, TOTAL),
         GROUPS | {"softcap": 2.0, "scale": 0.3}, (0, 1, 2)),
    Call("GroupQueryAttention", (*GROUPED, None, None, LENGTHS, TOTAL),
         GROUPS | {"local_window_size": 2}, (0, 1, 2)),
    Call("GroupQueryAttention", (*GROUPED, None, None, LENGTHS, TOTAL, table(), table()),
         GROUPS | {"do_rotary": 1}, (0, 1, 2)),
    Call("GroupQueryAttention", (*GROUPED, None, None, LENGTHS, TOTAL, table(), table()),
         GROUPS | {"do_rotary": 1, "rotary_interleaved": 1}, (0, 1, 2)),
    Call("GroupQueryAttention", ((B, S, D + 2 * G * H), None, None, None, None, LENGTHS, TOTAL),
         GROUPS, (0, 1, 2), "packed"),
    Call("GroupQueryAttention",
         ((1, S, D), (1, S, G * H), (1, S, G * H), (1, G, P, H), (1, G, P, H),
          np.array([S + P - 1], np.int32), np.array(S + P, np.int32), table(), table()),
         GROUPS | {"do_rotary": 1}, (0, 1, 2), "past"),
    Call("GroupQueryAttention",
         (*GROUPED, None, None, LENGTHS, TOTAL, table(), table(), *[None] * 5, (H,), (H,)),
         GROUPS | {"do_rotary": 1, "qk_norm_epsilon": 1e-3}, (0, 1, 2), "norms", ort=False),
    Call("GroupQueryAttention", (*GROUPED, None, None, LENGTHS, TOTAL, *[None] * 4, (N,)),
         GROUPS, (0, 1, 2), "sink"),
    Call("GroupQueryAttention", (*GROUPED, None, None, LENGTHS, TOTAL, *[None] * 4, (N,)),
         GROUPS | {"local_window_size": 2, "softcap": 2.0}, (0, 1, 2), "sink behind a window"),
    Call("GroupQueryAttention", (*GROUPED, None, None, LENGTHS, TOTAL),
         GROUPS | {"smooth_softmax": 1}, (0, 1, 2)),
    Call("GroupQueryAttention",
         ((1, S, D), (1, S, G * H), (1, S, G * H), (1, G, P, H), (1, G, P, H),
          np.array([S + P - 1], np.int32), np.array(S + P, np.int32), *[None] * 4, (N,)),
         GROUPS | {"local_window_size": 3}, (0, 1, 2), "sink and past"),
]  # fmt: skip


drawn = partial(sampled, by=attrgetter("op"))


def build(call: Call, opset: int, *, symbolic: bool = False) -> tuple[onnx.ModelProto, dict]:
    rng = np.random.default_rng(5)
    inputs, names, feeds, weights = [], [], {}, []
    for slot, given in enumerate(call.inputs):
        names.append("" if given is None else f"x{slot}")
        if isinstance(given, np.ndarray):
            weights.append(onnx.numpy_helper.from_array(given, f"x{slot}"))
        elif given is not None:
            feeds[f"x{slot}"] = rng.standard_normal(given).astype(np.float32)
            shape = [f"n{size}" if symbolic else size for size in given]
            inputs.append(helper.make_tensor_value_info(f"x{slot}", 1, shape))
    domain, op = call.op.split("::") if "::" in call.op else ("com.microsoft", call.op)
    outputs = [f"y{i}" if i in call.outputs else "" for i in range(max(call.outputs) + 1)]
    node = helper.make_node(op, names, outputs, name="node", domain=domain, **call.attributes)
    values = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    graph = helper.make_graph([node], "g", inputs, values, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets), feeds


@pytest.mark.parametrize("opset", sampled([23, 18, 20]))
@pytest.mark.parametrize("call", drawn(c for c in CALLS if c.ort), ids=lambda c: c.id)
def test_the_same_as_onnxruntime(tmp_path, call, opset):
    ort = pytest.importorskip("onnxruntime")
    proto, feeds = build(call, opset)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    expected = ort.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, feeds)
    model = gt.load(tmp_path / "m.onnx")
    found = gt.run(gt.grad(model, loss="sum", input_grad=["*"], wrt=[]), feeds).outputs

    assert not any(n.domain == "com.microsoft" for n in model.graph)
    for name, value in zip((f"y{i}" for i in call.outputs), expected, strict=True):
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("opset", sampled([23, 18]))
@pytest.mark.parametrize("call", drawn(CALLS), ids=lambda c: c.id)
def test_gradients(tmp_path, call, opset):
    pytest.importorskip("onnxruntime")
    proto, feeds = build(call, opset)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    training = gt.grad(gt.load(tmp_path / "m.onnx"), loss="sum", wrt=list(feeds))
    verified(training, feeds)


UNSURE = {  # by the end of the identifier: what can't be told of open sizes
    "lengths": "key_padding_mask",
    "projected": "number of heads is unknown",
}


@pytest.mark.sample(4, 2)
@pytest.mark.parametrize("opset", sampled([23, 18]))
@pytest.mark.parametrize("call", drawn(CALLS), ids=lambda c: c.id)
def test_gradients_where_every_size_is_open(tmp_path, call, opset):
    pytest.importorskip("onnxruntime")
    proto, feeds = build(call, opset, symbolic=True)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    why = next((why for end, why in UNSURE.items() if call.id.endswith(end)), None)
    if why is not None:
        with pytest.raises(gt.GradtoolError, match=why):
            gt.grad(gt.load(tmp_path / "m.onnx"), loss="sum", wrt=list(feeds))
        return
    has_past = any(isinstance(s, tuple) and len(s) == 4 and s[2] == P for s in call.inputs)
    is_added_to = has_past and call.inputs[3] is not None  # what an input adds is no cache
    model = gt.load(tmp_path / "m.onnx", keep_cache=is_added_to)
    training = gt.grad(model, loss="sum", wrt=list(feeds))

    verified(training, feeds)


def test_class_weights_that_the_file_does_not_read_stay():
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1]>
    net (float[2, 4] x) => (float[2, 3] y) {
        h = MatMul (x, w)
        y = com.microsoft.Gelu (h)
    }""")
    rng = np.random.default_rng(0)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(rng.random(shape, np.float32), name)
        for name, shape in (("w", (4, 3)), ("shares", (3,)))
    )

    assert [*gt.grad(gt.load(model), loss="ce:y@weight=shares").gradients] == ["w"]

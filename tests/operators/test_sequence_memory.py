"""Recurrent operators and attention take no memory but what they declare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checkers import check_memory

from gradtool.graph.specs import Spec
from gradtool.ops import kernels as registry
from gradtool.ops.shared.call import spec_of

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def array(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).normal(size=shape) / 8).astype(dtype)


def operands(op: str, batch: int, size: int, *, direction: str = "forward", layout: int = 0):
    times, both = 32, 2 if direction == "bidirectional" else 1
    rows = GATES[op] * size
    x = array(batch, times, size) if layout else array(times, batch, size)
    state = array(batch, both, size) if layout else array(both, batch, size)
    y = array(batch, times, both, size) if layout else array(times, both, batch, size)
    weights = [array(both, rows, size), array(both, rows, size), array(both, 2 * rows)]
    lens = np.full(batch, times, np.int32)
    cells = [state, array(both, 3 * size)] if op == "LSTM" else []
    return [x, *weights, lens, state, *cells], y, state, weights


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(
    "options",
    [{}, {"direction": "bidirectional"}, {"direction": "reverse", "layout": 1}],
    ids=str,
)
def test_recurrent_kernels(op, options):
    inputs, y, state, weights = operands(op, 48, 64, **options)
    states = [spec_of(state)] * (2 if op == "LSTM" else 1)
    check_memory(op, inputs, [spec_of(y), *states], hidden_size=64, **options)

    dys = [y, *[state] * len(states)]
    results = [spec_of(a) for a in (inputs[0], *weights)] + states
    if op == "LSTM":
        results.append(spec_of(inputs[7]))
    check_memory(f"ai.gradtool::{op}Grad", [*inputs, y, *dys], results, hidden_size=64, **options)


@pytest.mark.sample(4)
@pytest.mark.parametrize("length", [96, 1024])
@pytest.mark.parametrize("options", [{}, {"is_causal": 1}, {"softcap": 2.0}], ids=str)
@pytest.mark.parametrize("mask", [None, bool, np.float32], ids=str)
def test_attention_kernels(length, options, mask):
    q, k = array(1, 4, length, 32), array(1, 2, length, 32)
    bias = None if mask is None else (array(length, length) > 0).astype(mask)
    check_memory("Attention", [q, k, k, bias], [spec_of(q)], **options)

    of = [0] if mask is np.float32 else []
    results = [spec_of(a) for a in (q, k, k, *([bias] if of else []))]
    masks = [] if bias is None else [None, bias]
    check_memory(
        "ai.gradtool::FusedAttentionGrad", [q, k, k, None, q, *masks], results, of=of, **options
    )


def test_rotary_embedding():
    x, table = array(4, 8, 128, 64), array(128, 32)
    positions = np.tile(np.arange(128), (4, 1))
    check_memory("RotaryEmbedding", [x, table, table, positions], [spec_of(x)])


def workspace(op: str, *shapes: tuple[int, ...] | None) -> int:
    found = registry.find(*(("ai.gradtool", op) if op.endswith("Grad") else ("", op)), 23)
    specs = [None if s is None else Spec(s, np.dtype(np.float32)) for s in shapes]
    return sum(w.bytes for w in found.workspace(specs, [specs[0]] * 3, {}))


def test_the_workspace_of_attention_grows_neither_with_the_batch_nor_with_heads():
    def total(batch, heads):
        q = (batch, heads, 1024, 64)
        backward = workspace("FusedAttentionGrad", q, q, q, None, q)
        return workspace("Attention", q, q, q), backward

    assert total(1, 1) == total(8, 12)
    assert max(total(8, 12)) < 2 * 2**20

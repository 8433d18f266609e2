"""Recurrent operators and attention give the same however their work is cut into blocks."""

from __future__ import annotations

from importlib import import_module

import cases
import numpy as np
import pytest
from checkers import differentiated, evaluate
from conftest import sampled

from gradtool.operators import attention, recurrence
from gradtool.ops.attention import body_rows as _rows
from gradtool.ops.composites.calls import expand

for family in ("attention", "contrib", "recurrent"):
    import_module(f"operators.{family}")
CASES = {c.id + str(i): c for i, c in enumerate(cases.CASES) if c.gradient}
ATTENTION = [i for i, c in CASES.items() if "Attention" in c.op]
RECURRENT = [i for i, c in CASES.items() if c.op in ("LSTM", "GRU", "RNN")]


def agree(case, monkeypatch, module, name, size):
    model, feeds, _ = differentiated(case)
    whole = evaluate(model, feeds)
    monkeypatch.setattr(module, name, size)
    blocks = evaluate(model, feeds)

    for output in model.graph.outputs:
        np.testing.assert_allclose(
            blocks[output.name], whole[output.name], rtol=1e-11, atol=1e-12, err_msg=output.name
        )


@pytest.mark.parametrize("size", [1, 10, 30])
@pytest.mark.parametrize("case", sampled(ATTENTION))
def test_attention_in_blocks_of_few_scores(case, size, monkeypatch):
    agree(CASES[case], monkeypatch, attention, "SCORES", size)


@pytest.mark.parametrize("size", [1, 6])
@pytest.mark.parametrize("case", sampled(RECURRENT))
def test_recurrence_in_chunks_of_few_times(case, size, monkeypatch):
    agree(CASES[case], monkeypatch, recurrence, "ROWS", size)


@pytest.mark.parametrize(("scores", "rows"), [(1, 1), (1, 2), (40, 1)])
@pytest.mark.parametrize("case", sampled(ATTENTION))
def test_bodies_of_attention_in_blocks_of_few_rows(case, scores, rows, monkeypatch):
    model, feeds, _ = differentiated(CASES[case])
    whole = evaluate(model, feeds)
    monkeypatch.setattr(_rows, "SCORES", scores)
    monkeypatch.setattr(_rows, "ROWS", rows)
    expand(model, lambda _: False)
    blocks = evaluate(model, feeds)

    several = CASES[case].inputs[0].shape[-2] > 1
    assert any(node.op_type == "Scan" for node in model.graph) == several
    for output in model.graph.outputs:
        np.testing.assert_allclose(
            blocks[output.name], whole[output.name], rtol=1e-11, atol=1e-12, err_msg=output.name
        )

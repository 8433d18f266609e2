"""Packed rows: the gradients are the sum of those of their documents, each alone."""

import decoders
import numpy as np
import pytest
from decoders import Options

import gradtool as gt
from gradtool import io
from gradtool.errors import UsageError
from gradtool.passes.document_mask import DOCUMENTS
from gradtool.passes.widen import widen

LENGTHS = (5, 3, 4)
FORMS = {
    "fused": Options(heads=4, groups=2, rotary=False),
    "rotary": Options(packed=True),
    "window": Options(rotary=False, window=2),
    "softcap": Options(softcap=20.0, layers=1, rotary=False),
    "joined": Options("joined", heads=4, groups=2, rotary=False),
    "merged": Options("merged", layers=1, rotary=False),
}


def step(proto, feeds, **options):
    """Loss and gradients in float64."""
    training = gt.grad(gt.load(proto), loss="causal:logits", **options)
    wide = widen(training.model)
    takes = {value.name for value in wide.graph.inputs}
    found = gt.run(wide, {name: each for name, each in feeds.items() if name in takes})
    return found.loss, found.gradients


def texts():
    draw = np.random.default_rng(3)
    return [draw.integers(0, decoders.WORDS, (1, size)) for size in LENGTHS]


def alone(proto):
    """Loss and gradients, summed over the labels of all texts."""
    loss, total = 0.0, {}
    for ids in texts():
        labels = {"input_ids": ids, "labels": ids, "attention_mask": np.ones_like(ids)}
        one, gradients = step(proto, {**labels, "use_cache_branch": np.array([False])})
        counted = ids.size - 1
        loss += counted * one
        for name, each in gradients.items():
            total[name] = total.get(name, 0) + counted * each
    return loss, total


def packed(padding):
    """All texts in a row: the first label of each is ignored, and so is what is behind them."""
    ids = np.concatenate([*texts(), np.zeros((1, padding), np.int64)], axis=1)
    ends = np.cumsum((0, *LENGTHS))
    labels = np.where(np.isin(np.arange(ids.size), [*ends, *range(ends[-1], ids.size)]), -100, ids)
    numbers = np.repeat([0, 1, 2, 0], [*LENGTHS, padding])[None]
    mask = (np.arange(ids.size) < ends[-1]).astype(np.int64)[None]
    return {"input_ids": ids, "labels": labels, "attention_mask": mask, DOCUMENTS: numbers}


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_a_packed_row_are_the_sum_of_those_of_its_texts(form, padding):
    proto = decoders.decoder(FORMS[form])
    loss, gradients = alone(proto)
    found, together = step(proto, packed(padding), documents=True)
    counted = sum(LENGTHS) - len(LENGTHS)
    close = 1e-6 if FORMS[form].rotary else 1e-10  # its tables have the digits of float32

    assert counted * found == pytest.approx(loss, rel=close)
    assert together.keys() == gradients.keys()
    for name, gradient in gradients.items():
        most = close * np.abs(gradient).max()
        np.testing.assert_allclose(counted * together[name], gradient, atol=most, err_msg=name)


@pytest.mark.parametrize("form", FORMS)
def test_without_the_mask_texts_see_those_before_them(form):
    proto = decoders.decoder(FORMS[form])
    counted = sum(LENGTHS) - len(LENGTHS)

    assert counted * step(proto, packed(0))[0] != pytest.approx(alone(proto)[0], rel=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_the_written_graph_computes_the_same_in_onnxruntime(form, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    training = gt.grad(gt.load(decoders.decoder(FORMS[form])), loss="causal:logits", documents=True)
    gt.save(training, tmp_path / "step.onnx")
    feeds = packed(2)
    session = ort.InferenceSession(tmp_path / "step.onnx", providers=["CPUExecutionProvider"])
    takes = [value.name for value in session.get_inputs()]
    names = [each.name for each in session.get_outputs()]
    theirs = dict(zip(names, session.run(None, {n: feeds[n] for n in takes}), strict=True))
    ours = gt.run(training, {n: feeds[n] for n in takes})

    assert theirs[training.loss] == pytest.approx(ours.loss, rel=1e-4)
    for name, gradient in ours.gradients.items():
        most = 1e-3 * np.abs(gradient).max()
        other = theirs[training.gradients[name]]
        np.testing.assert_allclose(other, gradient, atol=most, err_msg=name)


def test_layers_share_one_mask_and_a_model_without_attention_has_none():
    training = gt.grad(gt.load(decoders.decoder()), loss="causal:logits", documents=True)
    (numbers,) = (v for v in training.model.graph.inputs if v.name == DOCUMENTS)
    made = [node for node in training.model.graph if node.op_type == "Equal"]
    plain = gt.grad(gt.load("samples/lstm.onnx"), documents=True)

    assert [str(d) for d in numbers.shape] == ["batch", "sequence_length"]
    assert len(made) == 1
    assert DOCUMENTS not in {v.name for v in plain.model.graph.inputs}
    assert io.symbols(training.model) == ["batch", "sequence_length"]


def test_an_input_of_that_name_is_refused():
    proto = decoders.decoder(Options("joined"))
    for node in proto.graph.node:
        node.input[:] = [DOCUMENTS if name == "attention_mask" else name for name in node.input]
    proto.graph.input[1].name = DOCUMENTS

    with pytest.raises(UsageError, match="packed rows need that name"):
        gt.grad(gt.load(proto), loss="causal:logits", documents=True)

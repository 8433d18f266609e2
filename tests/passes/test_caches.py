"""Decoders with a key/value cache: found by what it is, empty in training, there in the result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import decoders
import numpy as np
import onnx
import pytest
from conftest import sampled
from decoders import Options
from graphs import parse
from onnx import numpy_helper

import gradtool as gt
from gradtool import io
from gradtool.passes.cache_search import find

FORMS = [
    Options(),
    Options("joined"),
    Options("merged"),
    Options(packed=True, heads=4, groups=2),
    Options(rotary=False, window=3),
    Options(softcap=20.0, layers=1),
    Options(heads=4, groups=4, attributes={"scale": 0.5, "rotary_interleaved": 1}),
    Options("joined", heads=4, groups=2, total="past_sequence_length + sequence_length"),
    Options("merged", heads=4, groups=2, layers=1),
    Options(names=("in_{kind}.{n}", "out_{kind}.{n}")),
    Options("joined", alone=True),
    Options("merged", layers=1, alone=True),
]


def given(model, options: Options, **sizes: int) -> dict[str, np.ndarray]:
    """Drawn inputs, those that a model takes."""
    takes = {value.name for value in model.graph.inputs}
    return {n: a for n, a in decoders.feeds(options, **sizes).items() if n in takes}


def trained(model, options: Options, **sizes: int) -> gt.Result:
    """A step of a model, whose labels are drawn."""
    training = gt.grad(model, loss="causal:logits")
    feeds = given(training.model, options, **sizes)
    labels = np.random.default_rng(2).integers(0, decoders.WORDS, feeds["input_ids"].shape)
    return gt.run(training, {**feeds, "labels": labels})


@pytest.mark.parametrize("options", sampled(FORMS, by=lambda options: options.form))
def test_scores_are_those_of_onnxruntime_with_an_empty_cache(options):
    ort = pytest.importorskip("onnxruntime")
    proto = decoders.decoder(options)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (theirs,) = session.run(["logits"], decoders.feeds(options))
    model = gt.load(proto)

    assert [v.name for v in model.graph.outputs] == ["logits"]
    assert io.symbols(model) == ["batch", "sequence_length"]
    np.testing.assert_allclose(
        gt.run(model, given(model, options)).outputs["logits"], theirs, rtol=2e-4, atol=2e-4
    )


@pytest.mark.parametrize("options", sampled(FORMS, by=lambda options: options.form))
def test_gradients_are_those_of_an_empty_cache_that_is_fed(options):
    proto = decoders.decoder(options)
    found = trained(gt.load(proto), options)
    fed = trained(gt.load(proto, keep_cache=True), options)

    assert found.loss == pytest.approx(fed.loss, rel=1e-6)
    assert set(found.gradients) == set(fed.gradients)
    for name, gradient in found.gradients.items():
        most = 1e-4 * abs(fed.gradients[name]).max()
        np.testing.assert_allclose(gradient, fed.gradients[name], rtol=0, atol=most, err_msg=name)


@pytest.mark.parametrize("form", ["fused", "joined"])
def test_a_cache_that_is_kept_is_read(form):
    ort = pytest.importorskip("onnxruntime")
    options = Options(form)
    proto = decoders.decoder(options)
    model = gt.load(proto, keep_cache=True)
    feeds = given(model, options, batch=1, past=4)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = session.run(None, decoders.feeds(options, batch=1, past=4))
    found = gt.run(model, feeds).outputs

    for value, wanted in zip(session.get_outputs(), theirs, strict=True):
        np.testing.assert_allclose(found[value.name], wanted, rtol=2e-4, atol=2e-4)


def test_the_size_of_a_head_is_known_where_a_cache_is_kept():
    model = gt.load(decoders.decoder(), keep_cache=True)

    assert "cache_size" not in io.symbols(model)


@pytest.mark.parametrize("keep_cache", [False, True])
def test_a_past_of_no_length_may_be_said(keep_cache):
    options = Options("joined")
    dims = {"past_sequence_length": 0, "total_sequence_length": 5, "sequence_length": 5}
    model = gt.load(decoders.decoder(options), dims=dims, keep_cache=keep_cache)

    assert io.symbols(model) == ["batch"]
    assert np.isfinite(trained(model, options).loss)


def test_the_whole_length_may_be_said_for_that_of_the_sequence():
    model = gt.load(decoders.decoder(), dims={"total_sequence_length": 7})

    assert list(model.graph.inputs[0].shape) == ["batch", 7]


@pytest.mark.parametrize(
    ("dims", "told"),
    [
        ({"past_sequence_length": 3}, "--keep-cache"),
        ({"sequence_length": 5, "total_sequence_length": 6}, "sequence_length is given as"),
    ],
)
def test_a_length_that_an_empty_cache_cannot_have_is_refused(dims, told):
    with pytest.raises(gt.UsageError, match=told):
        gt.load(decoders.decoder(), dims=dims)


@pytest.mark.parametrize("form", ["fused", "joined"])
def test_lengths_of_a_kept_cache_add_up(form):
    proto = decoders.decoder(Options(form))
    dims = {"past_sequence_length": 3, "total_sequence_length": 8}
    model = gt.load(proto, dims=dims, keep_cache=True)

    assert io.symbols(model) == ["batch"]
    with pytest.raises(gt.UsageError, match="--dim total_sequence_length"):
        gt.load(proto, dims={**dims, "sequence_length": 6}, keep_cache=True)


def test_tables_of_angles_are_no_parameters():
    training = gt.grad(gt.load(decoders.decoder()), loss="causal")

    assert not {"cos", "sin"} & set(training.gradients)
    assert not [line for line in training.warnings if "scalar" in line]


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"qk_output": 1}, "qk_output"),
        ({"k_quant_type": "PER_TENSOR"}, "k_quant_type"),
    ],
)
def test_what_attention_does_not_support_is_named(attributes, told):
    with pytest.raises(gt.ModelError, match=told):
        gt.load(decoders.decoder(Options(attributes=attributes)))


def with_sinks(options: Options) -> onnx.ModelProto:
    """A fused decoder whose heads learn a score of nothing each."""
    proto = decoders.decoder(options)
    draw = np.random.default_rng(3)
    for layer, node in enumerate(n for n in proto.graph.node if n.op_type == "GroupQueryAttention"):
        node.input.extend([""] * (11 - len(node.input)))
        node.input.append(f"sink.{layer}")
        sink = draw.standard_normal(options.heads).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(sink, f"sink.{layer}"))
    return proto


@pytest.mark.parametrize("window", [-1, 3])
def test_sinks_are_trained_and_share_in_probabilities(window):
    ort = pytest.importorskip("onnxruntime")
    options = Options(heads=4, groups=2, window=window)
    proto = with_sinks(options)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (theirs,) = session.run(["logits"], decoders.feeds(options))
    model = gt.load(proto)
    found = trained(model, options)
    fed = trained(gt.load(proto, keep_cache=True), options)

    np.testing.assert_allclose(
        gt.run(model, given(model, options)).outputs["logits"], theirs, rtol=2e-4, atol=2e-4
    )
    assert {"sink.0", "sink.1"} <= set(found.gradients)
    for name, gradient in found.gradients.items():
        most = 1e-4 * abs(fed.gradients[name]).max()
        np.testing.assert_allclose(gradient, fed.gradients[name], rtol=0, atol=most, err_msg=name)


def test_a_cache_of_a_window_is_refused_but_where_it_is_empty():
    options = Options(window=2, attributes={"sliding_window_cache": 1})
    whole = Options(window=2)
    loss = trained(gt.load(decoders.decoder(options)), options).loss

    assert loss == trained(gt.load(decoders.decoder(whole)), whole).loss
    with pytest.raises(gt.ModelError, match="sliding_window_cache"):
        gt.load(decoders.decoder(options), keep_cache=True)


@pytest.mark.parametrize(
    "options", [Options(layers=1), Options("joined", layers=1), Options("joined", 1, flat=True)]
)
def test_a_step_in_parts_is_that_of_the_batch(options):
    feeds = decoders.feeds(options, batch=4)
    feeds["attention_mask"][:2, 3:] = 0
    data = {n: feeds[n] for n in ("input_ids", "attention_mask")} | {"labels": feeds["input_ids"]}
    losses = []
    for parts in (1, 2):
        model = gt.load(decoders.decoder(options))
        given = {"loss": "causal", "batch": 4, "steps": 2, "micro_batches": parts}
        with gt.Trainer(model, **given, optimizer="sgd", lr=0.01, shuffle=False) as trainer:
            losses.append(trainer.fit(data).losses)

    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_a_mask_picked_from_by_places_of_other_examples_is_not_computed_in_parts():
    options = Options("joined", layers=1, flat=True, start="one")
    feeds = decoders.feeds(options, batch=4)
    data = {n: feeds[n] for n in ("input_ids", "attention_mask")} | {"labels": feeds["input_ids"]}
    model = gt.load(decoders.decoder(options))

    with (
        gt.Trainer(model, loss="causal", batch=4, steps=1, micro_batches=2) as trainer,
        pytest.raises(gt.UsageError, match="leave out micro-batches"),
    ):
        trainer.fit(data)


# ------------------------------------------------------------------------- finding

GROWN = """g (float[batch, past] a, float[batch, past] b, float[batch, 3] x, float[3, 2] w)
    => (float[batch, more] {0}, float[batch, more] {1}, float[batch, 2] y) {{
    new = MatMul (x, w)
    y = Exp (new)
    {0} = Concat <axis = 1> (a, new)
    both = Concat <axis = -1> (b, new)
    turned = Transpose <perm = [1, 0]> (both)
    {1} = Transpose <perm = [1, 0]> (turned)
}}"""


def pairs(text: str) -> dict[str, str]:
    return {c.before.name: c.after for c in find(parse(text).graph)}


def test_a_cache_is_an_input_that_an_output_is_grown():
    assert pairs(GROWN.format("one", "two")) == {"a": "one", "b": "two"}


def test_names_decide_which_of_several_outputs_goes_with_a_cache():
    text = """g (float[batch, past] past_0, float[batch, 2] x)
        => (float[batch, more] other, float[batch, more] now_0, float[batch, 2] y) {
        y = Exp (x)
        other = Concat <axis = 1> (past_0, y)
        z = Sin (x)
        now_0 = Concat <axis = 1> (past_0, z)
    }"""

    assert pairs(text) == {"past_0": "now_0"}


@pytest.mark.parametrize(
    "body",
    [
        "e = Exp (a) m = ReduceMean (e) s = Add (x, m) z = Concat <axis = 1> (a, s)",
        "e = Exp (a) z = Concat <axis = 1> (e, x)",
        "z = Concat <axis = 1> (a, x)",
        "z = Concat <axis = 0> (a, y)",
    ],
    ids=["a series that is continued", "a result", "by another input", "more examples"],
)
def test_what_is_grown_otherwise_is_no_cache(body):
    text = f"""g (float[queue, past] a, float[batch, 2] x) => (float[n, m] z, float[batch, 2] y) {{
        y = Exp (x) {body}
    }}"""

    assert pairs(text) == {}


def test_a_model_of_caches_alone_keeps_them():
    text = """g (float[batch, past] a) => (float[batch, more] z) <float[1, 2] w = {1, 2}> {
        z = Concat <axis = 1> (a, w)
    }"""

    assert pairs(text) == {}


@pytest.mark.usefixtures("tiny_model")
def test_a_cache_is_kept_where_there_is_one(run):
    outcome = run("report", "tiny.onnx", "--batch", "2", "--keep-cache")

    assert outcome.code == 2
    assert "--keep-cache: the model has no cache" in outcome.err


# -------------------------------------------------------------------------- result


def without_weights(path: Path) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    model = onnx.load(path)
    held = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
    return model, held


@pytest.mark.parametrize("form", ["fused", "joined", "merged"])
def test_the_result_is_the_file_but_for_what_was_trained(run, model, tmp_path, form):
    ort = pytest.importorskip("onnxruntime")
    options = Options(form)
    path = model(decoders.decoder(options), "decoder.onnx")
    feeds = decoders.feeds(options, batch=8)
    tokens = {n: feeds[n] for n in ("input_ids", "attention_mask")}
    np.savez(tmp_path / "data.npz", labels=feeds["input_ids"], **tokens)
    outcome = run("train", "decoder.onnx", "--data", "data.npz", "--loss", "causal", "--batch",
                  "4", "--steps", "2", "-o", "out.onnx")  # fmt: skip
    before, old = without_weights(path)
    after, new = without_weights(tmp_path / "out.onnx")

    assert outcome.code == 0
    assert "cache: 4 inputs taken as empty, 4 outputs dropped" in outcome.err
    assert before == after
    changed = {name for name in old if not np.array_equal(old[name], new[name])}
    assert changed == {name for name, array in old.items() if array.dtype == np.float32
                       and array.ndim > 0 and name not in ("cos", "sin")}  # fmt: skip
    ort.InferenceSession(tmp_path / "out.onnx", providers=["CPUExecutionProvider"])


def test_a_kit_is_merged_into_the_file_as_it_was(run, model, tmp_path):
    path = model(decoders.decoder(), "decoder.onnx")
    made = run("kit", "decoder.onnx", "--loss", "causal", "--optimizer", "sgd", "-o", "kit")
    merged = run("kit", "merge", "kit", "kit/state.safetensors", "-o", "out.onnx")

    assert (made.code, merged.code) == (0, 0)
    assert onnx.load(path) == onnx.load(tmp_path / "out.onnx")


def test_a_report_asks_for_the_length_of_the_sequence_alone(run, model):
    model(decoders.decoder(), "decoder.onnx")
    outcome = run("report", "decoder.onnx", "--batch", "1", "--dim", "sequence_length=6")

    assert outcome.code == 0
    assert "assumed" not in outcome.err


def test_a_case_may_keep_its_cache(run, model, tmp_path):
    model(decoders.decoder(Options(layers=1)), "decoder.onnx")
    (tmp_path / "gradtool.toml").write_text(
        """[[case]]
        model = "decoder.onnx"
        plan = "keep"
        loss = "causal"
        keep-cache = true
        dims = { batch = 1, sequence_length = 4, past_sequence_length = 2 }
        """
    )
    with_cache = run("check", "--update")
    baseline = next((tmp_path / "gradtool-baseline").iterdir()).read_text()

    assert with_cache.code == 0
    assert '"keep_cache": true' in baseline


def test_inputs_of_a_training_graph_are_no_caches_to_empty(tmp_path):
    options = Options("joined", layers=1)
    training = gt.grad(gt.load(decoders.decoder(options), keep_cache=True), loss="causal")
    gt.save(training.model, tmp_path / "grad.onnx")
    again = gt.load(tmp_path / "grad.onnx")

    assert [v.name for v in again.graph.inputs] == [v.name for v in training.model.graph.inputs]


def test_a_kept_cache_of_another_type_of_model_is_fed_with_arrays_of_the_data():
    options = replace(Options(layers=1), rotary=False)
    model = gt.load(decoders.decoder(options), keep_cache=True)

    assert np.isfinite(trained(model, options, past=3).loss)

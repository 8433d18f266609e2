import json

import numpy as np
import onnx
import pytest
from conftest import TINY, build, tiny_weights


def test_it_writes_a_graph_that_the_checker_accepts(run, tiny_model, tmp_path):
    outcome = run("grad", tiny_model)

    assert outcome.code == 0
    written = onnx.load(tmp_path / "tiny.grad.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert {o.name for o in written.graph.output} == {"loss", "w_grad", "b_grad"}
    assert {n.domain for n in written.graph.node} == {""}


def test_it_says_what_it_read_and_wrote(run, tiny_model):
    outcome = run("grad", tiny_model)

    lines = outcome.out.splitlines()
    assert lines[0] == "tiny.onnx  opset 20  batch (symbolic)"
    assert lines[1].startswith("loss: ")
    assert lines[1].endswith("parameters: 2 of 2")
    assert lines[2].startswith("nodes: 4 forward + 0 loss + ")
    assert lines[3].startswith("wrote ")


def test_json_has_the_gradients_by_name(run, tiny_model):
    document = json.loads(run("grad", tiny_model, "--format", "json").out)

    assert document["schema_version"] == 1
    assert document["gradients"] == {"w": "w_grad", "b": "b_grad"}


def test_a_file_lists_the_values(run, tiny_model, tmp_path):
    (tmp_path / "names.txt").write_text("b\n\n")

    document = json.loads(run("grad", tiny_model, "--wrt", "@names.txt", "--format", "json").out)

    assert list(document["gradients"]) == ["b"]


@pytest.mark.exhaustive
def test_the_same_bytes_whatever_the_hash_seed(shell, tiny_model, tmp_path):
    for seed in ("1", "2"):
        done = shell("grad", tiny_model, "-o", f"{seed}.onnx", PYTHONHASHSEED=seed)
        assert done.returncode == 0

    assert (tmp_path / "1.onnx").read_bytes() == (tmp_path / "2.onnx").read_bytes()


def test_standard_input_to_standard_output(shell, tiny_model, tmp_path):
    piped = shell("grad", "-", stdin=tiny_model.read_bytes())
    shell("grad", tiny_model, "-o", "file.onnx")

    assert piped.returncode == 0
    assert piped.stdout == (tmp_path / "file.onnx").read_bytes()
    assert b"loss: " in piped.stderr


@pytest.mark.parametrize("target", ["out.onnx", "out.onnxtxt"])
def test_text_in_and_text_out(run, tmp_path, target):
    proto = build(TINY, **tiny_weights())
    (tmp_path / "tiny.onnxtxt").write_text(onnx.printer.to_text(proto))

    outcome = run("grad", "tiny.onnxtxt", "-o", target)

    assert outcome.code == 0
    again = run("report", target, "--format", "json", "--dim", "batch=2")
    assert json.loads(again.out)["models"][0]["peak_bytes"] > 0


def test_the_default_output_of_text_is_binary(run, tmp_path):
    proto = build(TINY, **tiny_weights())
    (tmp_path / "tiny.onnxtxt").write_text(onnx.printer.to_text(proto))

    assert run("grad", "tiny.onnxtxt").code == 0
    assert onnx.load(tmp_path / "tiny.grad.onnx").graph.node


def test_an_older_opset_is_raised_and_said(run, model):
    header = '<ir_version: 8, opset_import: ["" : 13]>'
    path = model(build(TINY, header, **tiny_weights()))

    outcome = run("grad", path)

    assert outcome.code == 0
    assert "raised from opset 13 to " in outcome.err


def test_an_opset_that_is_asked_for(run, tiny_model, tmp_path):
    outcome = run("grad", tiny_model, "--opset", "21")

    assert outcome.code == 0
    assert "raised from opset 20 to 21: asked for" in outcome.err
    (opset,) = onnx.load(tmp_path / "tiny.grad.onnx").opset_import
    assert opset.version == 21


@pytest.mark.parametrize("opset", ["17", "19"])
def test_an_opset_below_that_of_the_model_is_refused(run, tiny_model, opset):
    outcome = run("grad", tiny_model, "--opset", opset)

    assert outcome.code == 2
    assert f"opset {opset}: the model has 20" in outcome.err


def test_split_writes_two_files_that_are_one_step(run, tiny_model, tiny_inputs):
    outcome = run("grad", tiny_model, "--split")

    assert outcome.code == 0
    assert "saved for backward: 1 values" in outcome.out
    assert run("run", "tiny.forward.onnx", "--inputs", tiny_inputs, "--save-outputs", "s.npz",
               "--device", "cpu").code == 0  # fmt: skip
    with np.load("s.npz") as saved, np.load(tiny_inputs) as inputs:
        np.savez("b.npz", loss_grad=np.float32(1), **saved, **inputs)
    second = run("run", "tiny.backward.onnx", "--inputs", "b.npz", "--save-grads", "g.npz",
                 "--device", "cpu")  # fmt: skip
    run("run", tiny_model, "--inputs", tiny_inputs, "--save-grads", "h.npz", "--device", "cpu")

    assert second.code == 0
    with np.load("g.npz") as ours, np.load("h.npz") as whole:
        assert sorted(ours.files) == sorted(whole.files) == ["b", "w"]
        for name in ours.files:
            np.testing.assert_array_equal(ours[name], whole[name])


def test_split_says_its_files_to_machines(run, tiny_model):
    document = json.loads(
        run("grad", tiny_model, "--split", "-o", "a.onnx", "--format", "json").out
    )

    assert document["output"] == "a.forward.onnx"
    assert document["backward"] == "a.backward.onnx"
    assert document["saved"] == ["e"]


def test_split_needs_file_names(run, tiny_model):
    outcome = run("grad", tiny_model, "--split", "-o", "-")

    assert outcome.code == 2
    assert "--split writes two files: name them with -o FILE" in outcome.err


def test_functions_are_written_on_request(run, model):
    path = model(TINY.replace("Exp (s)", "Tanh (s)"), **tiny_weights())
    assert run("grad", path, "--functions").code == 0

    written = onnx.load("model.grad.onnx")
    assert [f.name for f in written.functions] == ["TanhGrad_1"]
    assert run("run", "model.grad.onnx", "--dim", "batch=2", "--device", "cpu").code == 0


def test_several_losses_and_the_names_of_their_labels(run, tiny_model):
    outcome = run(
        "grad", tiny_model, "--loss", "0.5*mse:h", "--loss", "ce:e", "--labels", "h=t",
        "--format", "json",
    )  # fmt: skip

    document = json.loads(outcome.out)
    assert document["labels"] == ["t", "labels_e"]
    assert document["loss"] == "loss_1"


def test_labels_are_given_once(run, tiny_model):
    outcome = run("grad", tiny_model, "--loss", "ce:e", "--labels", "a", "--labels", "b")

    assert outcome.code == 2
    assert "--labels b: write NAME once" in outcome.err


def test_training_mode_is_a_flag(run, model):
    text = """g (float[N, 3] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[N, 3] y) {
        y = BatchNormalization (x, s, b, m, v)
    }"""
    proto = build(text, **{n: np.ones(3, np.float32) for n in "sbmv"})
    del proto.graph.input[1:]
    path = model(proto)

    assert "1 BatchNormalization in inference mode" in run("grad", path, "--loss", "mse").err
    outcome = run("grad", path, "--loss", "mse", "--train-mode", "--force")
    assert outcome.code == 0
    assert "BatchNormalization" not in outcome.err
    outputs = {o.name for o in onnx.load("model.grad.onnx").graph.output}
    assert outputs >= {"m_next", "v_next"}


def test_gradient_buffers_add_up_micro_batches(run, tiny_model):
    parts = np.random.default_rng(0).standard_normal((2, 2, 8)).astype(np.float32)
    assert run("grad", tiny_model, "--grad-buffers", "--loss", "loss").code == 0
    sums = {}
    for part in parts:
        np.savez("in.npz", x=part, **{f"{n}_grad_in": g for n, g in sums.items()})
        outcome = run("run", "tiny.grad.onnx", "--inputs", "in.npz", "--save-grads", "g.npz",
                      "--force", "--device", "cpu")  # fmt: skip
        assert outcome.code == 0
        with np.load("g.npz") as found:
            sums = dict(found)
    np.savez("all.npz", x=parts.reshape(4, 8))
    run("run", tiny_model, "--inputs", "all.npz", "--save-grads", "h.npz", "--device", "cpu")

    with np.load("h.npz") as whole:
        for name, expected in whole.items():
            np.testing.assert_allclose(sums[name], expected, rtol=1e-5)

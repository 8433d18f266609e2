import json

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

"""Whatever the last write of a training meets, nothing that was trained is lost."""

import errno
import os
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from trainings import examples, proto

from gradtool.io import atomic, safetensors
from gradtool.training.loop import Loop

TRAIN = ("train", "net.onnx", "--data", "data.npz", "--batch", "8", "--steps", "3")
FULL = ("out", "step-00000003")  # what finds no room, of one suffix


@pytest.fixture
def net(model, tmp_path):
    np.savez(tmp_path / "data.npz", **examples(24))
    return model(proto(), "net.onnx")


def after_steps(monkeypatch, happens):
    """Let something happen once all steps are taken, before results are written."""
    run = Loop.run

    def changed(loop):
        ended = run(loop)
        happens()
        return ended

    monkeypatch.setattr(Loop, "run", changed)


def becomes_a_folder(out):
    out.mkdir()


def is_in_no_folder(out):
    shutil.rmtree(out.parent)


def has_no_source(out):
    out.parent.parent.joinpath("net.onnx").unlink()


@pytest.mark.usefixtures("net")
@pytest.mark.parametrize("happens", [becomes_a_folder, is_in_no_folder, has_no_source])
def test_weights_that_cannot_be_written_are_kept(happens, run, tmp_path, monkeypatch):
    out = tmp_path / "results" / "out.onnx"
    out.parent.mkdir()
    after_steps(monkeypatch, lambda: happens(out))
    outcome = run(*TRAIN, "-o", str(out), "--run", "run")

    assert outcome.code == 2
    assert "the weights are kept in run/out.safetensors" in outcome.err
    assert "--resume writes what is missing" in outcome.err
    kept = safetensors.load(tmp_path / "run" / "out.safetensors").arrays
    checkpoint = safetensors.load(tmp_path / "run" / "step-00000003.safetensors").arrays
    assert kept
    for name, array in kept.items():
        np.testing.assert_array_equal(array, checkpoint[name])


@pytest.mark.usefixtures("net")
def test_resuming_writes_what_was_missing(run, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        after_steps(patch, (tmp_path / "out.onnx").mkdir)
        assert run(*TRAIN, "-o", "out.onnx").code == 2
    outcome = run(*TRAIN, "-o", "again.onnx", "--resume")

    assert outcome.code == 0
    kept = safetensors.load(tmp_path / "net.train" / "out.safetensors").arrays
    for tensor in onnx.load(tmp_path / "again.onnx").graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), kept[tensor.name])


@pytest.mark.usefixtures("net")
@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
def test_a_full_disk_loses_nothing(suffix, run, tmp_path, monkeypatch):
    """The result does not fit, or the last checkpoint does not."""
    fill, rehearse, is_full = atomic.fill, atomic.rehearse, []

    def filled(path, output):
        if is_full and output.path.suffix == suffix and output.path.stem in FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fill(path, output)

    def rehearsed(sizes):
        rehearse(sizes)
        is_full.append(True)

    monkeypatch.setattr(atomic, "fill", filled)
    monkeypatch.setattr(atomic, "rehearse", rehearsed)
    outcome = run(*TRAIN, "-o", "out.onnx", "--run", "run")

    assert outcome.code == 2
    assert os.strerror(errno.ENOSPC) in outcome.err
    where = tmp_path / "run" / "out.safetensors"
    if suffix == ".safetensors":  # nor do the weights
        assert "could not be written anywhere" in outcome.err
    else:
        assert "the weights are kept in run/out.safetensors" in outcome.err
        assert set(safetensors.load(where).arrays) == {
            t.name for t in onnx.load(tmp_path / "net.onnx").graph.initializer
        }


@pytest.mark.usefixtures("net")
@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("x" * 300 + ".onnx", "File name too long"),
        ("nowhere/out.onnx", "there is no folder"),
        ("folder", "is a folder"),
    ],
)
def test_a_place_that_takes_no_file_is_refused_before_the_first_step(output, said, run, tmp_path):
    (tmp_path / "folder").mkdir()
    outcome = run(*TRAIN, "-o", output, "--run", "run")

    assert outcome.code == 2
    assert said in outcome.err
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("net")
def test_a_disk_that_is_too_small_is_refused_before_the_first_step(run, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    outcome = run(*TRAIN, "--run", "run")

    assert outcome.code == 2
    assert "are to be written there, its disk has 10 B" in outcome.err
    assert not (tmp_path / "run").exists()


def test_what_the_checker_refuses_of_the_file_it_may_refuse_of_the_result(run, tmp_path):
    """onnxruntime's builder of language models writes its norm into the standard domain."""
    rng = np.random.default_rng(0)
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("SimplifiedLayerNormalization", ["x", "gain"], ["n"], axis=-1),
        helper.make_node("MatMul", ["n", "w"], ["y"]),
    ]
    tensors = [
        numpy_helper.from_array(np.ones(4, np.float32), "gain"),
        numpy_helper.from_array(rng.standard_normal((4, 2)).astype(np.float32), "w"),
    ]
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, ["n", 4])],
        [value("y", TensorProto.FLOAT, ["n", 2])], tensors,
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (tmp_path / "net.onnx").write_bytes(made.SerializeToString())
    x = rng.standard_normal((8, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, labels=x[:, :2])
    adapted = ("--lora", "1", "--lora-adapter")
    for flags in ((), adapted):
        assert run(*TRAIN, "--loss", "mse:y", "--force", *flags).code == 0
    assert (tmp_path / "net.lora.onnx").exists()


@pytest.mark.parametrize("form", ["initializer", "constant"])
def test_branches_may_call_their_weights_alike(form, run, tmp_path):
    rng = np.random.default_rng(0)
    value = helper.make_tensor_value_info

    def branch(name):
        held = numpy_helper.from_array(rng.standard_normal((4, 2)).astype(np.float32), "w")
        nodes = [helper.make_node("MatMul", ["x", "w"], [name])]
        if form == "constant":
            nodes.insert(0, helper.make_node("Constant", [], ["w"], value=held))
        kept = [held] if form == "initializer" else []
        return helper.make_graph(nodes, name, [], [value(name, 1, ["n", 2])], kept)

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("a"), else_branch=branch("b"))
    graph = helper.make_graph(
        [node], "g", [value("x", 1, ["n", 4]), value("c", TensorProto.BOOL, [])],
        [value("y", 1, ["n", 2])],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (tmp_path / "net.onnx").write_bytes(made.SerializeToString())
    x = rng.standard_normal((8, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, c=np.array(True), labels=x[:, :2])
    ways = ((), ("--lora", "1"), ("--lora", "1", "--lora-adapter"))
    for flags in ways:
        outcome = run(*TRAIN, "--optimizer", "sgd", "--loss", "mse:y", "--force", *flags)
        assert outcome.code == 0, outcome.err
        after = onnx.load(tmp_path / "net.trained.onnx").graph.node[0]
        for old, new in zip(node.attribute, after.attribute, strict=True):
            changed = held(old.g) != held(new.g)
            assert changed == (old.name == "then_branch")


def held(graph):
    tensors = [*graph.initializer, *(a.t for n in graph.node for a in n.attribute)]
    return [numpy_helper.to_array(tensor).tobytes() for tensor in tensors]

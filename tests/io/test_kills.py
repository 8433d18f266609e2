"""A process may be killed at any moment of a write: what is there is the old or the new, whole."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from conftest import sampled
from kills import content, is_supported, result, states, visible
from onnx import helper, numpy_helper

from gradtool import io
from gradtool.io import atomic, folders

pytestmark = pytest.mark.skipif(not is_supported(), reason="needs processes that fork")


def dense(seed: int, elements: int = 600) -> onnx.ModelProto:
    """`loss = sum(exp(x + w))` with the weight of a seed."""
    weight = np.random.default_rng(seed).standard_normal(elements).astype(np.float32)
    nodes = [
        helper.make_node("Add", ["x", "w"], ["s"], name="add"),
        helper.make_node("Exp", ["s"], ["e"], name="exp"),
        helper.make_node("ReduceSum", ["e"], ["loss"], name="sum", keepdims=0),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [elements])],
        [helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, [])],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


@pytest.fixture
def before(tmp_path):
    """A folder with two models, `old.onnx` and `new.onnx`, of the same structure."""
    folder = tmp_path / "before"
    folder.mkdir()
    for seed, name in enumerate(("old", "new")):
        (folder / f"{name}.onnx").write_bytes(dense(seed).SerializeToString())
    return folder


def whole(found: dict[str, bytes], name: str) -> dict[str, bytes]:
    """A model and the data that it names; what is absent is left out."""
    if name not in found:
        return {}
    proto = onnx.load_from_string(found[name])
    places = [
        e.value for t in proto.graph.initializer for e in t.external_data if e.key == "location"
    ]
    return {each: found[each] for each in (name, *places) if each in found}


def save(source: str, target: str, external_data: str) -> None:
    io.save(io.load(source), target, force=True, external_data=external_data)


@pytest.mark.sample(2)
@pytest.mark.parametrize("there", sampled(["nothing", "always", "never"]))
@pytest.mark.parametrize("external_data", ["always", "never"])
def test_a_model_and_its_data_are_the_old_pair_or_the_new_one(
    tmp_path, before, there, external_data
):
    work = tmp_path / "work"
    if there != "nothing":
        save(before / "old.onnx", before / "out.onnx", there)
    action = partial(save, "new.onnx", "out.onnx", external_data)
    old, new = content(before), result(work, before, action)
    seen = set()
    for when, left, again in states(work, before, action):
        pair = whole(left, "out.onnx")
        assert pair in (whole(old, "out.onnx"), whole(new, "out.onnx")), when
        assert again == new, when
        seen.add(pair == whole(new, "out.onnx"))

    assert seen == {False, True}


def test_what_a_killed_write_leaves_behind_is_hidden_but_for_data_that_nobody_names(
    tmp_path, before
):
    work = tmp_path / "work"
    save(before / "old.onnx", before / "out.onnx", "always")
    action = partial(save, "new.onnx", "out.onnx", "always")
    known = {*content(before), *result(work, before, action)}

    assert all(set(visible(left)) <= known for _, left, _ in states(work, before, action))


@pytest.mark.parametrize("there", sampled([0, 4]))
def test_files_of_a_folder_are_all_old_or_all_new(tmp_path, before, there):
    folder = before / "baseline"
    if there:
        folders.write(folder, {f"{n}.json": b"old" for n in range(there)} | {"own.txt": b"kept"})
    action = partial(
        folders.write, tmp_path / "work" / "baseline", {f"{n}.json": b"new" for n in range(4)}
    )
    old, new = content(before), result(tmp_path / "work", before, action)
    for when, left, again in states(tmp_path / "work", before, action):
        assert visible(left) in (old, new), when
        assert again == new, when


@pytest.mark.parametrize("there", sampled(["data a b", "a b", "data b"], 2))
def test_of_files_written_together_none_is_new_beside_an_old_one(tmp_path, before, there):
    """What comes before them, as the data of a model, is not of the bundle."""
    work = tmp_path / "work"
    for name in there.split():
        (before / name).write_bytes(b"old")

    def action() -> None:
        names = ("data", "a", "b")
        outputs = [atomic.Output(work / name, lambda file: file.write(b"new")) for name in names]
        atomic.write(outputs, together=2)

    seen = {(left.get("a"), left.get("b")) for _, left, _ in states(work, before, action)}
    old = b"old" if "a" in there.split() else None

    assert seen == {(old, b"old"), (old, None), (b"new", None), (b"new", b"new")}


def test_a_model_outlives_what_is_written_beside_it(tmp_path, before):
    work = tmp_path / "work"
    save(before / "old.onnx", before / "out.onnx", "always")
    (before / "beside").write_bytes(b"old")

    def action() -> None:
        beside = [atomic.Output(work / "beside", lambda file: file.write(b"new"))]
        model = io.load("old.onnx")
        model.metadata_props["new"] = "yes"  # of the same data
        io.save(model, "out.onnx", force=True, external_data="always", beside=beside)

    old, new = content(before), result(work, before, action)
    assert old.keys() == new.keys()
    for when, left, again in states(work, before, action):
        pair = left["out.onnx"], left.get("beside")
        assert pair[0] in (old["out.onnx"], new["out.onnx"]), when
        assert pair[1] in (None, b"new" if pair[0] == new["out.onnx"] else b"old"), when
        assert again == new, when


def fill(made, text: bytes) -> None:
    for name in ("a", "deep/b"):
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_bytes(text)


@pytest.mark.parametrize("there", sampled([False, True]))
def test_a_folder_is_the_old_one_or_the_new_one(tmp_path, before, there):
    work = tmp_path / "work"
    if there:
        (before / "kit" / "notes").mkdir(parents=True)
        (before / "kit" / "notes" / "own.txt").write_bytes(b"kept")
        (before / "kit" / "outdated").write_bytes(b"old")
        (before / "kit" / "a").write_bytes(b"old")
    action = partial(
        folders.put, work / "kit", partial(fill, text=b"new"), lambda name: name != "notes"
    )
    old, new = content(before), result(work, before, action)
    assert ("kit/notes/own.txt" in new) == there
    assert "kit/outdated" not in new
    for when, left, again in states(work, before, action):
        assert visible(left) in (old, new), when
        assert again == new, when

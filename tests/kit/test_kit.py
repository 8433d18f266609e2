"""`gradtool kit` and `gradtool kit merge`: what is in a kit, and what is refused."""

from __future__ import annotations

import json
import os
import shutil

import jsonschema
import numpy as np
import onnx
import pytest
from deep import deep
from kits import batch_of, net
from onnx import numpy_helper

import gradtool as gt
from gradtool.commands.schema import schema_named
from gradtool.errors import UsageError
from gradtool.io import safetensors
from gradtool.kit.merge import merge_kit
from gradtool.kit.write import write_kit

SIZES = {"I": 3, "H": 4, "O": 2, "B": 5}


@pytest.fixture
def cnn(tmp_path):
    path = tmp_path / "cnn.onnx"
    path.write_bytes(net("cnn", SIZES))
    return path


@pytest.fixture
def kit(run, cnn, tmp_path):
    outcome = run("kit", cnn, "--train-mode", "-o", "kit")
    assert outcome.code == 0, outcome.err
    return tmp_path / "kit"


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*")) if path.is_file()
    }  # fmt: skip


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def refused(outcome, *words):
    assert outcome.code == 2, outcome
    last = outcome.err.strip().rpartition("\n")[2]
    assert last.startswith("gradtool: ")
    assert all(word in last for word in words), last


# ------------------------------------------------------------------------------- what is written


def test_a_kit_is_said_and_described(run, cnn, tmp_path):
    outcome = run("kit", cnn, "--train-mode")

    assert outcome.code == 0
    assert "step.onnx: takes x float32['batch', 2, 6, 6], labels int64['batch'], lr" in outcome.out
    assert "state: 5 parameters, 2 statistics, 11 of the optimizer" in outcome.out
    assert outcome.out.splitlines()[-1].startswith(f"wrote {cnn.with_suffix('.kit')} (")
    assert "gradtool kit merge" in outcome.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cnn.kit", "cnn.onnx"]


def test_json_is_the_manifest(run, cnn, tmp_path):
    outcome = run("kit", cnn, "--optimizer", "momentum", "-o", "kit", "--format", "json")
    told = json.loads(outcome.out)

    assert told == manifest(tmp_path / "kit")
    assert told["optimizer"] == {
        "name": "momentum", "learning_rate": "lr", "inputs": {"lr": "lr", "momentum": "momentum"},
        "nesterov": False,
    }  # fmt: skip
    defaults = {each["name"]: each.get("default") for each in told["step"]["inputs"]}
    assert defaults == {"x": None, "labels": None, "lr": 1e-3, "momentum": 0.9}
    assert told["model"]["file"] == "../cnn.onnx"
    schema = schema_named("kit")
    jsonschema.Draft202012Validator(schema).validate(told)


def test_state_is_fed_back_by_one_rule(kit):
    told = manifest(kit)
    step = onnx.load(kit / "step.onnx")
    outputs = {v.name for v in step.graph.output}

    assert all(each["next"] == f"{each['name']}_next" for each in told["state"]["tensors"])
    assert outputs >= {each["next"] for each in told["state"]["tensors"]} | {told["loss"]}
    assert outputs == {each["name"] for each in told["step"]["outputs"]}


def test_nothing_of_the_state_is_in_the_models(kit):
    names = {each["name"] for each in manifest(kit)["state"]["tensors"]}
    for key in ("step", "eval"):
        model = onnx.load(kit / f"{key}.onnx")
        inputs = {v.name for v in model.graph.input}
        taken = manifest(kit)[key]

        assert not names & {t.name for t in model.graph.initializer}
        assert inputs == {i["name"] for i in taken["inputs"]} | {*taken["state"]}
    assert taken["state"] == [n for n in taken["state"] if n in names]
    assert not any("exp_avg" in name for name in taken["state"])


def test_both_forms_of_the_state_hold_the_weights_of_the_file(kit, cnn):
    arrays = safetensors.load(kit / "state.safetensors").arrays
    weights = {t.name: numpy_helper.to_array(t) for t in onnx.load(cnn).graph.initializer}

    for each in manifest(kit)["state"]["tensors"]:
        data = (kit / each["file"]).read_bytes()
        first = weights.get(each["name"], np.zeros(each["shape"], each["type"]))
        assert data == arrays[each["name"]].tobytes() == first.tobytes()


def test_the_same_model_is_the_same_bytes(run, cnn, kit, tmp_path):
    run("kit", cnn, "--train-mode", "-o", "again")

    assert content(kit) == content(tmp_path / "again")


def test_a_planned_kit_says_its_plan_and_the_options_that_keep_it(run, model, tmp_path):
    path = model(deep(), "deep.onnx")
    outcome = run("kit", path, "--plan", "mirror", "--batch", "64", "-o", "kit")
    told = manifest(tmp_path / "kit")
    nodes = onnx.load(tmp_path / "kit" / "step.onnx").graph.node
    stages = [p.value for n in nodes for p in n.metadata_props if p.key == "gradtool.stage"]

    assert outcome.code == 0
    assert (told["plan"]["name"], told["plan"]["dims"]) == ("mirror", {"batch": 64})
    assert told["plan"]["peak_bytes"] < told["plan"]["keep_bytes"]
    assert told["onnxruntime"] == {"enable_mem_pattern": False, "enable_mem_reuse": False}
    assert "recompute" in stages


def test_a_plan_in_a_file_is_followed(run, cnn, tmp_path):
    flags = ("--batch", "64", "--optimizer", "adam")
    run("recompute", cnn, "--strategy", "sqrt", "-o", "plan.json", *flags)
    outcome = run("kit", cnn, "--plan", "plan.json", "-o", "kit", *flags)

    assert outcome.code == 0, outcome.err
    assert manifest(tmp_path / "kit")["plan"]["name"] == "plan.json"


def test_frozen_weights_are_constants_of_both_models(run, cnn, tmp_path):
    run("kit", cnn, "--wrt", "w2", "--wrt", "b2", "-o", "kit")
    told = manifest(tmp_path / "kit")
    parameters = [e["name"] for e in told["state"]["tensors"] if e["role"] == "parameter"]

    assert parameters == ["w2", "b2"]
    for name in ("step.onnx", "eval.onnx"):
        tensors = {t.name for t in onnx.load(tmp_path / "kit" / name).graph.initializer}
        assert "w1" in tensors


def test_weights_beside_the_model_lie_beside_those_of_the_kit(run, cnn, tmp_path):
    model = onnx.load(cnn)
    path = tmp_path / "outside.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    kit = run("kit", path, "--wrt", "w2", "-o", "kit")
    merged = run("kit", "merge", "kit", "kit/state.safetensors", "-o", "merged.onnx")

    assert (kit.code, merged.code) == (0, 0), (kit.err, merged.err)
    ours, theirs = onnx.load(tmp_path / "merged.onnx"), onnx.load(path)
    assert {t.name: numpy_helper.to_array(t).tobytes() for t in ours.graph.initializer} == {
        t.name: numpy_helper.to_array(t).tobytes() for t in theirs.graph.initializer
    }


# ---------------------------------------------------------------------------------------- folders


def test_a_kit_is_not_replaced_without_force(run, cnn, kit):
    before = content(kit)
    refused(run("kit", cnn, "-o", "kit"), "kit exists; pass --force to overwrite")

    assert content(kit) == before


def test_a_kit_is_replaced_with_force_and_what_else_is_there_stays(run, cnn, kit):
    (kit / "notes").mkdir()
    (kit / "notes" / "mine.txt").write_text("kept")
    outcome = run("kit", cnn, "--optimizer", "sgd", "-o", "kit", "--force")

    assert outcome.code == 0, outcome.err
    assert (kit / "notes" / "mine.txt").read_text() == "kept"
    files = {e["file"] for e in manifest(kit)["state"]["tensors"]}
    assert {f"state/{path.name}" for path in (kit / "state").iterdir()} == files


def test_a_folder_of_something_else_is_never_replaced(run, cnn, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    refused(run("kit", cnn, "-o", "mine", "--force"), "folder of something else than a kit")

    assert content(tmp_path / "mine") == {"thesis.txt": b"precious"}


def test_nothing_is_left_where_a_kit_cannot_be_made(run, cnn, tmp_path, monkeypatch):
    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gradtool.kit.write._write_state", full)
    refused(run("kit", cnn, "-o", "kit"), "kit: cannot be written: No space left on device")

    assert [path.name for path in tmp_path.iterdir()] == ["cnn.onnx"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(run, cnn, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    refused(run("kit", cnn, "-o", "locked/kit"), "is read-only")


def test_what_is_no_folder_is_refused(run, cnn, tmp_path):
    (tmp_path / "file").touch()
    refused(run("kit", cnn, "-o", "file"), "file: is no folder")
    refused(run("kit", cnn, "-o", "no/where"), "no/where: there is no folder")


def test_a_model_from_standard_input_is_refused(run):
    refused(run("kit", "-", "-o", "kit"), "a kit is of a model in a file")


def test_a_training_graph_is_refused(run, cnn):
    run("grad", cnn, "-o", "graph.onnx")
    refused(run("kit", "graph.onnx", "-o", "kit"), "give the forward model")


def test_a_graph_without_updates_or_file_is_refused(cnn, tmp_path):
    with pytest.raises(UsageError, match="name an optimizer"):
        write_kit(gt.grad(gt.load(cnn), loss="ce"), tmp_path / "kit")
    held = gt.grad(gt.load(cnn.read_bytes()), loss="ce", optimizer="sgd")
    with pytest.raises(UsageError, match="of a model in a file"):
        write_kit(held, tmp_path / "kit")


# ---------------------------------------------------------------------------------------- merging


def changed(kit, **change):
    """A state of the kit with other weights."""
    arrays = {n: a.copy() for n, a in safetensors.load(kit / "state.safetensors").arrays.items()}
    return {name: change.get(name, array) for name, array in arrays.items()}


def test_merging_writes_weights_and_statistics_and_leaves_the_rest(run, cnn, kit, tmp_path):
    w1 = np.full((4, 2, 3, 3), 0.5, np.float32)
    state = changed(kit, w1=w1, mean=np.full(4, 7, np.float32))
    safetensors.save(tmp_path / "t.safetensors", state)
    outcome = run("kit", "merge", "kit", "t.safetensors")
    before, after = onnx.load(cnn), onnx.load(tmp_path / "cnn.trained.onnx")
    weights = {t.name: numpy_helper.to_array(t) for t in after.graph.initializer}

    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("wrote cnn.trained.onnx (")
    assert (weights["w1"] == w1).all()
    assert (weights["mean"] == 7).all()
    ours, theirs = (
        [(n.op_type, list(n.input), list(n.output), list(n.attribute)) for n in m.graph.node]
        for m in (after, before)
    )
    assert ours == theirs
    assert list(after.metadata_props) == list(before.metadata_props)


@pytest.mark.usefixtures("kit")
def test_a_folder_of_binaries_merges_to_the_same_bytes(run, tmp_path):
    run("kit", "merge", "kit", "kit/state.safetensors", "-o", "a.onnx")
    run("kit", "merge", "kit", "kit/state", "-o", "b.onnx")

    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_what_the_optimizer_remembers_may_be_left_out(run, kit, tmp_path):
    kept = {n: a for n, a in changed(kit).items() if "exp_avg" not in n}
    safetensors.save(tmp_path / "t.safetensors", kept)

    assert run("kit", "merge", "kit", "t.safetensors").code == 0


@pytest.mark.usefixtures("kit")
def test_the_model_may_have_moved(run, cnn, tmp_path):
    (tmp_path / "new").mkdir()
    shutil.move(cnn, tmp_path / "new" / "moved.onnx")
    refused(run("kit", "merge", "kit", "kit/state"), "the model of the kit is not there", "--model")
    outcome = run("kit", "merge", "kit", "kit/state", "--model", "new/moved.onnx")

    assert outcome.code == 0
    assert (tmp_path / "moved.trained.onnx").exists()


@pytest.mark.usefixtures("kit")
def test_another_model_is_refused(run, cnn):
    cnn.write_bytes(net("cnn", SIZES, seed=1))

    refused(run("kit", "merge", "kit", "kit/state"), "is another model than the one kit was made")


def test_a_wrong_state_is_one_line(run, kit, tmp_path):
    path = tmp_path / "t.safetensors"
    bad = {
        "the kit has no state 'w3'": {"w3": np.zeros(1)},
        "'w1' is float64[4, 2, 3, 3], in the kit float32[4, 2, 3, 3]": {
            "w1": np.zeros((4, 2, 3, 3))
        },
        "'b2' is float32[3], in the kit float32[2]": {"b2": np.zeros(3, np.float32)},
    }
    for words, change in bad.items():
        safetensors.save(path, changed(kit) | change, force=True)
        refused(run("kit", "merge", "kit", "t.safetensors"), words)
    lacking = changed(kit)
    del lacking["scale"]
    safetensors.save(path, lacking, force=True)
    refused(run("kit", "merge", "kit", "t.safetensors"), "lacks scale")
    path.write_bytes(b"not that")
    refused(run("kit", "merge", "kit", "t.safetensors"), "t.safetensors: is no safetensors file")
    refused(run("kit", "merge", "kit", "gone"), "gone: cannot be read")
    assert not (tmp_path / "cnn.trained.onnx").exists()


def test_a_wrong_folder_of_state_is_one_line(run, kit):
    first = next(e for e in manifest(kit)["state"]["tensors"] if e["name"] == "w2")
    file = kit / first["file"]
    file.write_bytes(file.read_bytes()[:-1])
    refused(run("kit", "merge", "kit", "kit/state"), "has 31 bytes, 'w2' of type float32[4, 2]")
    file.unlink()
    refused(run("kit", "merge", "kit", "kit/state"), "kit/state: lacks w2")
    (kit / "state" / "99-other.bin").touch()
    refused(run("kit", "merge", "kit", "kit/state"), "no state in a file '99-other.bin'")


def test_what_is_no_kit_is_one_line(run, kit, tmp_path):
    refused(run("kit", "merge", "nokit", "kit/state"), "nokit: is no folder")
    (tmp_path / "empty").mkdir()
    refused(run("kit", "merge", "empty", "kit/state"), "empty/manifest.json: cannot be read")
    good = manifest(kit)
    for bad, words in (
        ({"model": 3}, "it names no model"),
        ({"state": []}, "it describes no state"),
        ({"state": {"tensors": [{"name": "w"}]}}, "it describes no state"),
        ({"state": {"tensors": [good["state"]["tensors"][0] | {"type": "int3"}]}}, "no state"),
        ({"schema_version": 2}, "has no schema_version 1"),
    ):
        (kit / "manifest.json").write_text(json.dumps(good | bad))
        refused(run("kit", "merge", "kit", "kit/state"), "manifest.json: ", words)


@pytest.mark.usefixtures("kit")
def test_an_output_is_not_overwritten_without_force(run):
    assert run("kit", "merge", "kit", "kit/state", "-o", "a.onnx").code == 0
    refused(run("kit", "merge", "kit", "kit/state", "-o", "a.onnx"), "a.onnx exists")
    assert run("kit", "merge", "kit", "kit/state", "-o", "a.onnx", "--force").code == 0


def test_a_merge_is_what_a_session_saves(cnn, tmp_path):
    training = gt.grad(gt.load(cnn), loss="ce", optimizer="adam", train_mode=True)
    write_kit(training, tmp_path / "kit")
    with gt.Session(training) as session:
        for _ in range(3):
            session.step(batch_of("cnn", SIZES))
        safetensors.save(tmp_path / "t.safetensors", session.values())
        session.save(tmp_path / "session.onnx")
    merge_kit(tmp_path / "kit", tmp_path / "t.safetensors", tmp_path / "merged.onnx")

    assert (tmp_path / "merged.onnx").read_bytes() == (tmp_path / "session.onnx").read_bytes()


# --------------------------------------------------------------------------------------- adapters


@pytest.fixture
def adapted(run, cnn, tmp_path):
    """A kit with adapters, and a state in which they are something."""
    outcome = run("kit", cnn, "--lora", "2", "--lora-alpha", "6", "--train-mode", "-o", "kit")
    assert outcome.code == 0, outcome.err
    rng = np.random.default_rng(0)
    first = safetensors.load(tmp_path / "kit" / "state.safetensors").arrays
    moved = {n: a + rng.standard_normal(a.shape).astype(a.dtype) for n, a in first.items()
             if "lora" in n or n == "mean"}  # fmt: skip
    safetensors.save(tmp_path / "t.safetensors", {**first, **moved})
    return tmp_path / "kit"


def test_a_kit_of_adapters_trains_nothing_else(adapted):
    told = manifest(adapted)
    of = {role: [] for role in ("parameter", "statistic", "optimizer")}
    for each in told["state"]["tensors"]:
        of[each["role"]].append(each["name"])

    assert of["parameter"] == ["w1.lora_A", "w1.lora_B", "w2.lora_A", "w2.lora_B"]
    assert of["statistic"] == ["mean", "var"]
    assert [(each["weight"], each["scale"]) for each in told["lora"]] == [("w1", 3.0), ("w2", 3.0)]
    for name in ("step.onnx", "eval.onnx"):
        assert {"w1", "w2"} <= {t.name for t in onnx.load(adapted / name).graph.initializer}


@pytest.mark.usefixtures("adapted")
def test_adapters_are_merged_or_written_beside_the_model(run, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    merged = run("kit", "merge", "kit", "t.safetensors", "-o", "merged.onnx")
    beside = run("kit", "merge", "kit", "t.safetensors", "--lora-adapter")
    x = batch_of("cnn", SIZES)["x"]
    adapter, how, quiet = ort.LoraAdapter(), ort.RunOptions(), ort.SessionOptions()
    adapter.Load(str(tmp_path / "cnn.lora.onnx_adapter"))
    how.add_active_adapter(adapter)
    quiet.log_severity_level = 3
    y = [
        ort.InferenceSession(tmp_path / name, quiet).run(["y"], {"x": x}, options)[0]
        for name, options in (("merged.onnx", None), ("cnn.lora.onnx", how), ("cnn.onnx", None))
    ]

    assert (merged.code, beside.code) == (0, 0), (merged.err, beside.err)
    assert [line.split()[1] for line in beside.out.splitlines()] == [
        "cnn.lora.onnx", "cnn.lora.onnx_adapter",
    ]  # fmt: skip
    np.testing.assert_allclose(y[0], y[1], rtol=1e-4, atol=1e-5)
    assert np.abs(y[0] - y[2]).max() > 1e-2
    names = [t.name for t in onnx.load(tmp_path / "merged.onnx").graph.initializer]
    assert names == [t.name for t in onnx.load(tmp_path / "cnn.onnx").graph.initializer]


@pytest.mark.usefixtures("kit")
def test_without_adapters_there_is_none_to_write(run, tmp_path):
    refused(run("kit", "merge", "kit", "kit/state", "--lora-adapter"), "no adapters to write")

    assert not (tmp_path / "cnn.lora.onnx").exists()


@pytest.mark.usefixtures("adapted")
def test_two_files_do_not_go_to_standard_output(run):
    outcome = run("kit", "merge", "kit", "kit/state", "--lora-adapter", "-o", "-")
    refused(outcome, "writes two files: name them with -o FILE")


def test_both_files_are_written_or_none(run, adapted, tmp_path):
    (tmp_path / "cnn.lora.onnx_adapter").touch()
    refused(run("kit", "merge", adapted, "kit/state", "--lora-adapter"), "onnx_adapter exists")

    assert not (tmp_path / "cnn.lora.onnx").exists()


def test_a_manifest_with_wrong_adapters_is_refused(run, adapted):
    good = manifest(adapted)
    for bad in (3, [3], [{}], [good["lora"][0] | {"a": "w9"}], [good["lora"][0] | {"groups": 0}]):
        (adapted / "manifest.json").write_text(json.dumps(good | {"lora": bad}))
        refused(run("kit", "merge", "kit", "kit/state"), "its adapters are none")

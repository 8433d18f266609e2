"""What a training graph is, as metadata says it: read and written in one module."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest
from graphs import parse

import gradtool
import gradtool as gt
from gradtool import cli
from gradtool.errors import ModelError
from gradtool.graph.lora import Adapter
from gradtool.graph.training_info import (
    ABSENT,
    FACTS,
    Location,
    Lower,
    OptimizerInfo,
    TrainingInfo,
    record,
)

LINE = "g (float[4, 6] x, float[6, 8] w) => (y) { y = MatMul (x, w) }"
NAMES = {"w": "w_grad", "ü": "a b"}
WHOLE = TrainingInfo(
    loss="y", gradients=NAMES, state=NAMES,
    optimizer=OptimizerInfo("adam", "lr", {"lr": "lr"}, ("w",), {"epsilon": 1e-8}),
    buffers=NAMES, defaults={"lr": 0.001, "ones": [[1.0, 2.0]]}, draws=NAMES, heads=("g",),
    lower=(Lower("y", NAMES), Lower(None, {})), lora=(Adapter("w", "a", "b", 2.0, flipped=True),),
    locations={"t": Location("n", "coefficients")}, averages=NAMES, scale="s", rows=NAMES,
    frozen=("t",),
    saved=("h",), whole=("x", "y"), fixed={"rate": 16, "cache": None}, plan={"name": "mirror"},
    kernels="auto", ort_options={"enable_mem_reuse": False},
)  # fmt: skip
DAMAGES = (
    "", "[1", "[" * 100_000, "1" * 5_000, "3", "null", "true", '"x"', "[]", "[1]", "[null]",
    '["a"]', '[["a"]]', '[{"a": 1}]', '{"a": 1}', '{"a": "b"}', '{"a": ["b"]}', '{"a": {"b": 1}}',
    '{"a": null}',
)  # fmt: skip
# By key, how many of the damages are what gradtool might have written there.
SOUND = {
    "gradtool.gradients": 1, "gradtool.state": 1, "gradtool.buffers": 1, "gradtool.draws": 1,
    "gradtool.averages": 1, "gradtool.rows": 1, "gradtool.defaults": 1, "gradtool.optimizer": 0,
    "gradtool.heads": 2, "gradtool.saved": 2, "gradtool.whole": 2, "gradtool.lower": 1,
    "gradtool.lora": 1, "gradtool.locations": 0, "gradtool.set": 5, "gradtool.plan": 5,
    "gradtool.load": 5, "gradtool.frozen": 2,
}  # fmt: skip
TEXTS = ("gradtool.loss", "gradtool.scale", "gradtool.group")


def written(info: TrainingInfo) -> ir.Model:
    model = parse(LINE)
    info.write(model)
    return model


def test_what_is_written_is_read_again():
    model = written(WHOLE)

    assert list(model.metadata_props) == list(FACTS)
    assert TrainingInfo.of(model) == WHOLE
    assert written(TrainingInfo.of(model)).metadata_props == model.metadata_props


def test_an_empty_record_is_no_metadata_and_an_empty_fact_is_some():
    assert not written(TrainingInfo()).metadata_props
    assert not TrainingInfo().is_training_graph

    model = written(TrainingInfo(gradients={}, saved=()))

    assert model.metadata_props == {"gradtool.gradients": "{}", "gradtool.saved": "[]"}
    assert TrainingInfo.of(model).is_training_graph


def test_a_fact_is_changed_or_taken_out_and_the_others_stay_as_they_were_written():
    model = parse(LINE)
    given = {"gradtool.state": '{ "w":"n" }', "gradtool.gradients": "{}", "mine": "1"}
    model.metadata_props.update(given)

    record(model, loss="y", gradients={"w": "dw"})

    changed = {"gradtool.loss": "y", "gradtool.gradients": '{"w": "dw"}'}
    assert model.metadata_props == given | changed

    record(model, loss=None, gradients=ABSENT)

    assert model.metadata_props == {"gradtool.state": '{ "w":"n" }', "mine": "1"}


def test_changing_is_what_the_next_step_finds_otherwise():
    info = replace(TrainingInfo(), gradients={"w": "dw"}, state={"m": "n"}, rows={"t": "t_rows"})

    assert info.changing == {"w", "m", "t_rows"}
    assert info.of_next == {"n": "m"}


def test_every_damage_of_every_fact_is_one_line():
    assert {*SOUND, *TEXTS} == {*FACTS}
    model = gt.grad(parse(LINE, "w"), loss="mean:y").model
    for key, sound in SOUND.items():
        said = []
        for damage in DAMAGES:
            model.metadata_props[key] = damage
            try:
                TrainingInfo.of(model)
            except ModelError as error:
                said.append(str(error))
        del model.metadata_props[key]

        assert len(said) == len(DAMAGES) - sound, key
        assert all(f"{key!r} is not what gradtool writes" in line for line in said)
        assert all("\n" not in line and len(line) < 300 for line in said)


@pytest.mark.parametrize(
    ("key", "damage"),
    [("gradients", "[1"), ("state", "3"), ("lora", '[{"a": 1}]'), ("loss", "x"), ("plan", "[]")],
)
@pytest.mark.parametrize("command", ["report", "run", "grad"])
def test_a_damaged_file_is_refused_in_one_line(command, key, damage, tmp_path, capsys):
    model = gt.grad(parse(LINE, "w"), loss="mean:y").model
    path = tmp_path / "m.onnx"
    gt.save(model, path)
    proto = ir.load(path)
    proto.metadata_props[f"gradtool.{key}"] = damage
    ir.save(proto, path)

    assert cli.run([command, str(path)]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert f"m.onnx: its metadata 'gradtool.{key}'" in line


def test_no_other_module_reads_or_writes_facts():
    """What nodes say is no fact: which composite they were (CALLEE); `io` carries all along."""
    root = Path(gradtool.__file__).parent
    for path in root.rglob("*.py"):
        if path == root / "graph" / "training_info.py":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr | ast.Call):
                text = ast.unparse(node)
                is_json = "json.loads" in text or "json.dumps" in text
                assert not is_json or "props" not in text or "CALLEE" in text, f"{path}: {text}"
            if isinstance(node, ast.Attribute) and node.attr == "metadata_props":
                whose = ast.unparse(node.value)
                assert not whose.endswith("model") or path.parent.name == "io", f"{path}: {whose}"

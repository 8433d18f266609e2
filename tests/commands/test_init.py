"""`gradtool init`: the configuration that it writes, the first baseline, and what it refuses."""

import json
import os
import tomllib

import pytest
from conftest import build
from deep import deep

PROJECT = '# mine\n[project]\nname = "x"\n'


@pytest.fixture
def nets(model, tmp_path):
    """`one.onnx` and `models/two.onnx`, whose batch is open."""
    (tmp_path / "models").mkdir()
    model(deep(), "one.onnx")
    model(deep(layers=2), "models/two.onnx")


@pytest.fixture
def one(model):
    """`one.onnx` alone."""
    return model(deep(), "one.onnx").name


def cases(tmp_path, name="gradtool.toml"):
    found = tomllib.loads((tmp_path / name).read_text(encoding="utf-8"))
    return (found if name == "gradtool.toml" else found["tool"]["gradtool"])["case"]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("nets")
def test_every_model_here_and_below_has_a_case_and_a_baseline(run, tmp_path):
    outcome = run("init", "--dim", "batch=256")

    assert (outcome.code, outcome.err.splitlines()) == (
        0, ["next: git add gradtool.toml gradtool-baseline; then gradtool check"]
    )  # fmt: skip
    assert cases(tmp_path) == [
        {"name": "two", "model": "models/two.onnx", "dims": {"batch": 256}, "plan": "mirror"},
        {"name": "one", "model": "one.onnx", "dims": {"batch": 256}, "plan": "mirror"},
    ]
    assert "wrote gradtool.toml: 2 cases, 2 baselines in gradtool-baseline\n" in outcome.out
    assert run("check").code == 0


def test_what_it_records_is_what_check_would(run, one, tmp_path):
    assert run("init", one).code == 0
    path = tmp_path / "gradtool-baseline" / "one.json"
    before = path.read_bytes()
    path.unlink()

    assert run("check", "--update").code == 0
    assert path.read_bytes() == before


def test_the_same_models_make_the_same_bytes(run, one, tmp_path):
    assert run("init", one).code == 0
    before = (tmp_path / "gradtool.toml").read_bytes()

    assert run("init", one, "--force").code == 0
    assert (tmp_path / "gradtool.toml").read_bytes() == before


def test_sizes_that_nobody_gives_are_said(run, one):
    outcome = run("init", one)

    assert "one: assumed batch=1: write yours into gradtool.toml\n" in outcome.err


def test_a_plan_may_be_chosen(run, one, tmp_path):
    assert run("init", one, "--plan", "sqrt").code == 0

    assert cases(tmp_path)[0]["plan"] == "sqrt"
    recorded = (tmp_path / "gradtool-baseline" / "one.json").read_text(encoding="utf-8")
    assert json.loads(recorded)["plan"] == "sqrt"


def test_a_project_file_is_added_to(run, one, tmp_path):
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")

    assert run("init", one).code == 0
    assert not (tmp_path / "gradtool.toml").exists()
    assert (
        (tmp_path / "pyproject.toml").read_text(encoding="utf-8").startswith(f"{PROJECT}\n[tool.")
    )
    assert run("check").code == 0


def test_a_configuration_is_replaced_only_with_force(run, one, tmp_path):
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    assert run("init", one).code == 0
    before = (tmp_path / "pyproject.toml").read_bytes()

    refused = run("init", one, "--plan", "keep")

    assert refused.code == 2
    assert refused.err == (
        "gradtool: pyproject.toml is a configuration already; pass --force to replace it\n"
    )
    assert (tmp_path / "pyproject.toml").read_bytes() == before
    assert run("init", one, "--plan", "keep", "--force").code == 0
    assert [case["plan"] for case in cases(tmp_path, "pyproject.toml")] == ["keep"]


def test_no_baseline_is_written_if_none_is_wanted(run, one, tmp_path):
    outcome = run("init", one, "--no-baseline")

    assert "wrote gradtool.toml: 1 case\n" in outcome.out
    assert not (tmp_path / "gradtool-baseline").exists()
    assert run("check").code == 1


@pytest.mark.exhaustive
def test_a_model_that_cannot_be_planned_is_a_comment(run, model, one, tmp_path):
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    header = '<ir_version: 10, opset_import: ["" : 20, "acme" : 1]>'
    gate = build("g (float[4] x) => (float[4] y) { y = acme.Gate (x) }", header=header)
    model(gate, "gate.onnx")

    outcome = run("init")

    assert outcome.code == 0
    text = (tmp_path / "gradtool.toml").read_text(encoding="utf-8")
    assert "# junk.onnx has no case: is not an ONNX model" in text
    assert "# gate.onnx has no case: " in text
    assert "junk.onnx: no case: is not an ONNX model" in outcome.err
    assert str(tmp_path) not in text
    assert [case["model"] for case in cases(tmp_path)] == [one]


@pytest.mark.usefixtures("one")
def test_models_that_gradtool_wrote_are_left_out(run, tmp_path):
    assert run("grad", "one.onnx").code == 0

    assert run("init").code == 0
    assert [case["model"] for case in cases(tmp_path)] == ["one.onnx"]


def test_a_configuration_elsewhere_names_models_from_there(run, one, tmp_path):
    (tmp_path / "ci").mkdir()
    (tmp_path / ".git").mkdir()

    assert run("--config", "ci/gradtool.toml", "init", one).code == 0
    assert tomllib.loads((tmp_path / "ci" / "gradtool.toml").read_text("utf-8"))["case"][0][
        "model"
    ] == "../one.onnx"  # fmt: skip
    assert run("--config", "ci/gradtool.toml", "check").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dim", "bach=2", "one.onnx"), "--dim bach: no model here has such a size; did you"),
        (("--plan", "mirrr", "one.onnx"), "plan is 'mirrr': write one of keep, reorder, mirror"),
        (("-",), "standard input is none"),
        (("missing.onnx",), "no model here can be planned, so there is nothing to check"),
    ],
)
@pytest.mark.usefixtures("one")
def test_mistakes_are_one_line_and_write_nothing(run, tmp_path, arguments, message):
    before = sorted(tmp_path.iterdir())

    outcome = run("--quiet", "init", *arguments)

    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_without_models_is_refused(run, tmp_path):
    outcome = run("init")

    assert outcome.code == 2
    assert "no .onnx file" in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("one")
@pytest.mark.parametrize("name", ["pyproject.toml", "gradtool.toml"])
@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_what_is_no_file_is_no_configuration_to_write(run, tmp_path, name, kind):
    (tmp_path / "mine").write_text("[project]\n")
    match kind:
        case "link":
            (tmp_path / name).symlink_to("mine")
        case "dangling":
            (tmp_path / name).symlink_to("new")
        case "pipe":
            os.mkfifo(tmp_path / name)
        case "folder":
            (tmp_path / name).mkdir()

    outcome = run("init", "--force")

    assert outcome.code == 2
    assert outcome.err.startswith(f"gradtool: {name}: ")
    assert (tmp_path / "mine").read_text() == "[project]\n"
    assert not (tmp_path / "new").exists()

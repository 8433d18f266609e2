"""Which model is meant when none is named."""

import json
import shutil

import numpy as np
import pytest


def meant(outcome):
    return outcome.err.splitlines()[0].removeprefix("model: ").split(" ")[0]


def test_none(run):
    outcome = run("grad")

    assert outcome.code == 2
    assert outcome.err == ("gradtool: no MODEL given, and there is no .onnx file in this folder\n")


@pytest.mark.usefixtures("tiny_model")
def test_the_only_one(run):
    outcome = run("report")

    assert outcome.code == 0
    assert "model: tiny.onnx (the only one here)" in outcome.err


def test_a_graph_that_we_wrote_does_not_count(run, tiny_model, home):
    assert run("grad", tiny_model, "-o", "anything.onnx").code == 0
    shutil.rmtree(home)

    assert meant(run("report")) == "tiny.onnx"


def test_of_several_none(run, tiny_model, tmp_path):
    shutil.copy(tiny_model, tmp_path / "also.onnx")

    outcome = run("report")

    assert outcome.code == 2
    assert outcome.err == "gradtool: no MODEL given; here are also.onnx, tiny.onnx\n"


def test_the_last_one(run, tiny_model, tmp_path):
    shutil.copy(tiny_model, tmp_path / "also.onnx")
    assert run("grad", "also.onnx").code == 0

    outcome = run("report")

    assert outcome.code == 0
    assert "model: also.onnx (the last 'gradtool grad' here)" in outcome.err


def test_the_last_one_has_changed(run, tiny_model, tmp_path):
    shutil.copy(tiny_model, tmp_path / "also.onnx")
    assert run("grad", "also.onnx").code == 0
    with (tmp_path / "also.onnx").open("ab") as file:
        file.write(b"\x38\x01")

    assert run("report").code == 2


def test_a_note_of_another_folder_or_that_somebody_changed_is_no_note(
    run, tiny_model, tmp_path, home, monkeypatch
):
    shutil.copy(tiny_model, tmp_path / "also.onnx")
    assert run("grad", "also.onnx").code == 0
    (note,) = (home / "state/gradtool/last").iterdir()
    known = note.read_bytes()
    for changed in (b"", b"{}", known[:-1], known.replace(b"also", b"tiny")):
        note.write_bytes(changed)
        assert run("report").code == 2
    note.write_bytes(known)
    assert run("report").code == 0

    shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    monkeypatch.setattr("pathlib.Path.cwd", lambda: tmp_path.with_name("copy"))

    assert run("report").code == 2


def test_continuous_integration_has_no_memory(run, tiny_model, tmp_path, monkeypatch):
    shutil.copy(tiny_model, tmp_path / "also.onnx")
    assert run("grad", "also.onnx").code == 0
    monkeypatch.setenv("CI", "true")

    assert run("report").code == 2


def test_nothing_is_left_beside_what_was_asked_for(run, tiny_model, tmp_path):
    assert run("grad", tiny_model).code == 0

    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.grad.onnx", "tiny.onnx"]


HEAD = "head (float[batch, 8] x) => (float[batch, 4] y) { h = MatMul (x, w) y = Tanh (h) }"


@pytest.fixture
def configured(model, tmp_path):
    """A model with a configuration; `other.onnx` beside it is of no case."""
    model(HEAD, "net.onnx", w=np.ones((8, 4), np.float32))
    model(HEAD, "other.onnx", w=np.ones((8, 4), np.float32))

    def write(*tables):
        cases = (f'[[case]]\nmodel = "net.onnx"\n{table}\n' for table in tables)
        (tmp_path / "gradtool.toml").write_text("\n".join(cases))

    return write


def report(run, *flags):
    """The dims of a report of the model that is meant, and what was said."""
    outcome = run("report", "--format", "json", *flags)
    assert outcome.code == 0, outcome.err
    (found,) = json.loads(outcome.out)["models"]
    assert found["model"] == "net.onnx"
    return found["dims"], outcome.err.splitlines()


def test_the_model_of_a_case_comes_with_its_sizes_and_options(run, configured):
    configured('dims = { batch = 6 }\nloss = "mse:y"\ntrain-mode = true')

    dims, said = report(run)

    assert dims == {"batch": 6}
    assert said[:2] == [
        "model: net.onnx (of the cases in gradtool.toml)",
        "case 'net': batch=6, loss, train-mode",
    ]
    assert said[-1].startswith("loss: mean squared error, labels: ")


def test_of_several_cases_of_a_model_the_first_is_taken_and_said(run, configured):
    configured("dims = { batch = [6, 7] }", "dims = { batch = 9 }\nname = 'b'")

    dims, said = report(run)

    assert dims == {"batch": 6}
    assert said[1] == "case 'net[batch=6]', the first of 3: batch=6"


@pytest.mark.parametrize(
    ("flags", "batch"),
    [(("--dim", "batch=3"), 3), (("--batch", "4"), 4), (("--shape", "x=5x8"), 5)],
)
def test_sizes_on_the_command_line_go_before_those_of_the_case(run, configured, flags, batch):
    configured("dims = { batch = 6 }")

    dims, _ = report(run, *flags)

    assert dims == {"batch": batch}


@pytest.mark.parametrize(
    ("case", "said"), [("shapes = { x = '6x8' }", "x=6x8"), ("batch = 6", "batch 6")]
)
def test_shapes_and_the_batch_of_a_case_are_sizes_too(run, configured, case, said):
    configured(case)

    assert f"case 'net': {said}" in report(run)[1]


def test_a_loss_on_the_command_line_goes_before_all_that_the_case_says_of_it(run, configured):
    configured('loss = "mse:y"\nlabels = "t"\nwrt = "w"')

    _, said = report(run, "--batch", "2", "--head-grads")

    assert "case 'net': wrt" in said
    assert not [line for line in said if "mean squared" in line]


def test_labels_of_outputs_reach_the_loss(run, configured):
    configured('dims = { batch = 2 }\nloss = "mse:y"\nlabels = { y = "target" }')

    assert "labels: target float[2, 4]" in "".join(report(run)[1])


def test_what_grad_writes_keeps_its_sizes_open(run, configured):
    configured('dims = { batch = 6 }\nloss = "mse:y"')

    outcome = run("grad")

    assert outcome.code == 0
    assert "case 'net': loss" in outcome.err
    assert "batch (symbolic)" in outcome.out
    assert "mean squared error" in outcome.out


def test_a_run_has_the_sizes_of_its_inputs_and_else_those_of_the_case(run, configured, tmp_path):
    configured('dims = { batch = 6 }\nloss = "mean:y"')
    np.savez(tmp_path / "i.npz", x=np.ones((2, 8), np.float32))
    shown = ("--fetch", "y", "--device", "cpu", "--format", "json")

    drawn = json.loads(run("run", *shown).out)
    given = json.loads(run("run", "--inputs", "i.npz", *shown).out)

    assert drawn["outputs"]["y"]["shape"] == [6, 4]
    assert given["outputs"]["y"]["shape"] == [2, 4]


def test_plans_are_made_for_the_sizes_of_the_case(run, configured, tmp_path):
    configured("dims = { batch = 6 }")

    assert run("mirror", "--report").code == 0
    assert run("recompute", "--strategy", "sqrt", "-o", "p.json").code == 0
    assert json.loads((tmp_path / "p.json").read_text())["dims"] == {"batch": 6}


def test_a_model_that_is_named_has_nothing_of_a_case(run, configured):
    configured("dims = { batch = 6 }")

    outcome = run("report", "net.onnx", "--format", "json")

    assert json.loads(outcome.out)["models"][0]["assumed"] == {"batch": 1}
    assert "case" not in outcome.err


def test_cases_of_several_models_are_candidates(run, configured, tmp_path):
    configured("")
    with (tmp_path / "gradtool.toml").open("a") as file:
        file.write('[[case]]\nmodel = "other.onnx"\n')

    outcome = run("report")

    assert outcome.code == 2
    assert outcome.err == (
        "gradtool: no MODEL given; the cases of gradtool.toml are of net.onnx, other.onnx\n"
    )


def test_a_configuration_can_be_left_out(run, configured):
    configured("dims = { batch = 6 }")

    assert "here are net.onnx, other.onnx" in run("--no-config", "report").err

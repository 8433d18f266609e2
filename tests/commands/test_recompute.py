"""`gradtool recompute`: segments between checkpoints, and the other strategies."""

import json

import onnx
import pytest
from deep import deep

STRATEGIES = ["reorder", "mirror", "sqrt", "segments"]


@pytest.fixture
def net(model):
    return model(deep("256"), "deep.onnx")


def written(run, *arguments):
    outcome = run("recompute", *arguments, "--format", "json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_writes_a_file_of_the_promised_peak(run, net, strategy):
    found = written(run, net, "--strategy", strategy)
    keep, plan = found["plans"]
    again = run("report", "deep.recompute.onnx", "--format", "json")
    step = run("run", "deep.recompute.onnx", "--format", "json")

    assert (keep["plan"], found["schema_version"]) == ("keep", 1)
    assert plan["peak_bytes"] <= keep["peak_bytes"]
    assert json.loads(again.out)["models"][0]["peak_bytes"] == plan["peak_bytes"]
    assert json.loads(step.out)["arena_bytes"] == plan["peak_bytes"]
    assert found["written"].endswith("deep.recompute.onnx")


def test_checkpoints_by_name_list_and_file_are_one_plan(run, net, tmp_path):
    (tmp_path / "names").write_text("s1\n\ns0\n")
    ways = (["--checkpoints", "s1,s0"], ["--checkpoints", "s0", "--checkpoints", "s1"],
            ["--checkpoints", "@names"])  # fmt: skip
    files = []
    for number, flags in enumerate(ways):
        written(run, net, *flags, "-o", f"{number}.onnx")
        files.append((tmp_path / f"{number}.onnx").read_bytes())

    assert files[0] == files[1] == files[2]


def test_a_line_of_a_file_is_one_name(run, model, tmp_path):
    proto = deep("64")
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = [name.replace("s1", "s1,x") for name in names]
    path = model(proto, "comma.onnx")
    (tmp_path / "names").write_text("s1,x\n")

    assert written(run, path, "--checkpoints", "@names")["plans"][1]["plan"] == "checkpoints"


def test_named_checkpoints_are_held_whatever_they_cost(run, net):
    """One checkpoint right before the end: all of forward runs again, and nothing is saved."""
    keep, plan = written(run, net, "--checkpoints", "s2")["plans"]

    assert plan["extra_flops"] > 0
    assert plan["steps"] > keep["steps"]


def test_what_crosses_segments_is_said(run, model):
    proto = deep("64")
    proto.graph.node[-1].input[0] = "sum"
    proto.graph.node.insert(
        len(proto.graph.node) - 1, onnx.helper.make_node("Add", ["s2", "s0"], ["sum"])
    )
    path = model(proto, "cross.onnx")

    outcome = run("recompute", path, "--checkpoints", "s1")

    assert outcome.code == 0
    assert "held beside the checkpoints: s0 (better checkpoints would remove these)" in outcome.out


def test_gradients_keep_their_bits(run, net, tmp_path):
    written(run, net, "--strategy", "sqrt")
    for name, source in (("a", net), ("b", "deep.recompute.onnx")):
        flags = ("--seed", "3", "--save-grads", f"{name}.npz", "--device", "cpu")
        assert run("run", source, *flags).code == 0

    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


REFUSED = {
    "nothing said": ((), "say what to compute again: "),
    "both said": (
        ("--strategy", "sqrt", "--checkpoints", "s1"),
        "--strategy cannot be combined with --checkpoints",
    ),
    "an unknown strategy": (("--strategy", "optimum"), "'reorder', 'mirror', 'sqrt', 'segments'"),
    "an unknown checkpoint": (("--checkpoints", "s33"), "checkpoint 's33' does not exist"),
    "a close name": (("--checkpoints", "s11"), "did you mean 's1'?"),
    "a gradient": (("--checkpoints", "w1_grad"), "it is computed in the backward part"),
    "an input": (("--checkpoints", "x"), "no step computes it, it is of kind input"),
    "no file": (("--checkpoints", "@none"), "@none: cannot be read: No such file or directory"),
    "no names": (("--checkpoints", " , "), "no checkpoints are given"),
    "two models": (("--strategy", "sqrt", "other.onnx"), "unexpected extra argument"),
    "a folder": (("--strategy", "sqrt", "-o", "."), "."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(run, net, case):
    flags, message = REFUSED[case]

    outcome = run("recompute", net, *flags)

    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err.splitlines()[-1]
    assert outcome.err.splitlines()[-1].startswith("gradtool: ")


def test_the_last_gradient_here_is_meant(run, net):
    run("grad", net)

    outcome = run("recompute", "--strategy", "sqrt")

    assert outcome.code == 0
    assert outcome.err.startswith(f"model: {net} (the last 'gradtool grad' here)\n")


def test_an_existing_file_is_kept_without_force(run, net, tmp_path):
    (tmp_path / "r.onnx").write_bytes(b"mine")

    outcome = run("recompute", net, "--strategy", "sqrt", "-o", "r.onnx")

    assert outcome.code == 2
    assert (tmp_path / "r.onnx").read_bytes() == b"mine"
    assert run("recompute", net, "--strategy", "sqrt", "-o", "r.onnx", "--force").code == 0


@pytest.mark.exhaustive
def test_streams(shell, net):
    done = shell("recompute", "-", "--strategy", "sqrt", stdin=net.read_bytes())

    assert done.returncode == 0
    onnx.checker.check_model(onnx.load_from_string(done.stdout))
    assert b"recompute sqrt: peak " in done.stderr


@pytest.mark.exhaustive
def test_the_same_bytes_every_time(shell, net, tmp_path):
    files = []
    for seed in ("0", "1"):
        done = shell(
            "recompute", net, "--strategy", "segments", "-o", f"{seed}.onnx", PYTHONHASHSEED=seed
        )
        assert done.returncode == 0
        files.append((tmp_path / f"{seed}.onnx").read_bytes())

    assert files[0] == files[1]


def test_onnxruntime_runs_a_file_with_barriers(run, net):
    pytest.importorskip("onnxruntime")
    assert run("recompute", net, "--strategy", "sqrt").code == 0

    outcome = run("run", "deep.recompute.onnx", "--verify", "ort", "--device", "cpu")

    assert outcome.code == 0
    assert "agree with stock onnxruntime" in outcome.err


@pytest.mark.parametrize("form", ["csv", "markdown"])
def test_tables_for_other_programs_stand_alone(run, net, form):
    outcome = run("recompute", net, "--strategy", "sqrt", "--format", form)

    assert outcome.code == 0
    assert "wrote " not in outcome.out
    assert "wrote " in outcome.err

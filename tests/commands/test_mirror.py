"""`gradtool mirror`: what it writes, what it explains, and what it refuses."""

import json

import numpy as np
import onnx
import pytest
from deep import deep, document, report


def test_typed_as_it_is_after_grad(run, net):
    assert "next: gradtool mirror --report\n" in run("grad", net).err

    outcome = run("mirror", "--report", "--batch", 64)

    assert outcome.code == 0
    assert outcome.err.startswith(f"model: {net} (the last 'gradtool grad' here)\n")
    for title in ("keep everything", "mirror", "recompute sqrt"):
        assert f"\n {title} " in outcome.out
    assert ", not measured (gradtool run --measure)" in outcome.out.splitlines()[-1]


def test_a_report_writes_nothing(run, net, tmp_path):
    before = sorted(tmp_path.iterdir())

    assert run("mirror", "--report", net).code == 0
    assert run("mirror", "--explain", "t1", net).code == 0
    assert sorted(tmp_path.iterdir()) == before


def test_what_it_writes_runs_in_the_memory_that_it_promised(run, fixed):
    (promised,) = [p for p in report(run, fixed)["plans"] if p["plan"] == "mirror"]

    written = document(run("mirror", fixed, "--format", "json"))
    again = document(run("report", "fixed.mirror.onnx", "--format", "json"))["models"][0]
    step = document(run("run", "fixed.mirror.onnx", "--format", "json"))

    assert written["written"].endswith("fixed.mirror.onnx")
    assert promised["peak_bytes"] == written["plans"][1]["peak_bytes"]
    assert promised["peak_bytes"] == again["peak_bytes"] == step["arena_bytes"]


def test_what_it_wrote_is_mirrored_again_to_no_avail(run, fixed):
    first = document(run("mirror", fixed, "-o", "one.onnx", "--format", "json"))
    second = document(run("mirror", "one.onnx", "-o", "two.onnx", "--format", "json"))

    assert second["plans"][0]["peak_bytes"] == first["plans"][1]["peak_bytes"]
    assert second["plans"][1]["peak_bytes"] <= first["plans"][1]["peak_bytes"]


def test_a_written_file_keeps_what_was_open_and_notes_the_sizes_of_its_plan(run, net, tmp_path):
    """A batch of 64 gives a plan; the file runs with any."""
    run("mirror", net, "--dim", "batch=64", "-o", "given.onnx")
    run("mirror", net, "-o", "open.onnx")

    given, left = (onnx.load(tmp_path / name) for name in ("given.onnx", "open.onnx"))
    note = {p.key: p.value for p in given.metadata_props}["gradtool.plan"]
    assert json.loads(note)["dims"] == {"batch": 64}
    assert json.loads(note)["name"] == "mirror"
    assert left.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert run("run", "open.onnx", "--batch", "7").code == 0


def test_the_decision_stands_on_the_nodes(run, fixed, tmp_path):
    run("mirror", fixed, "--keep", "s0", "-o", "m.onnx")

    marks = {
        node.output[0]: {p.key: p.value for p in node.metadata_props}.get("gradtool.mirror")
        for node in onnx.load(tmp_path / "m.onnx").graph.node
    }
    assert (marks["s0"], marks["s1"]) == ("0", "1")


@pytest.mark.exhaustive
def test_keep_and_drop_change_the_decision(run, fixed):
    def mirrored(*options):
        """What is said of the mirror plan, and its peak."""
        found = report(run, fixed, *options, "--kernels", "numpy")
        (note,) = [note for note in found["notes"] if note.startswith("mirror: ")]
        return note, found["plans"][2]["peak_bytes"]

    (_, less), (policy, peak), (more, _) = (
        mirrored("--keep", "s*"), mirrored(), mirrored("--drop", "m*")
    )  # fmt: skip

    assert peak < less
    assert policy.endswith(" may be recomputed, 2 are")
    assert policy != more


def test_a_policy_from_a_file(run, fixed, tmp_path):
    (tmp_path / "mine.toml").write_text('base = "mirror"\nkeep = ["Tanh", "Sin"]\n')

    keep, _, mirror, *_ = report(run, fixed, "--policy", "mine.toml")["plans"]

    assert mirror["peak_bytes"] == keep["peak_bytes"]


REFUSED = {
    "a report is not written": (("--report", "-o", "a.onnx"), "--report writes nothing"),
    "nor is an explanation": (("--explain", "t0", "-o", "a.onnx"), "--explain writes nothing"),
    "one model is written": (("fixed.onnx",), "several models are for --report"),
    "one model is explained": (
        ("fixed.onnx", "--explain", "t0"), "several models cannot be combined with --explain"),
    "checkpoints are compared": (("--checkpoints", "s1"), "--checkpoints needs --report"),
    "memory is compared": (("--memory", "1GiB"), "--memory needs --report"),
    "parts are compared": (("--by", "op"), "--by needs --report"),
    "memory is of plans": (
        ("--report", "--by", "op", "--memory", "1GiB"), "--memory cannot be combined with --by op"),
    "a size has a unit": (("--report", "--memory", "8G"), "'8G' is ambiguous: write 8GiB"),
    "an explanation is no spreadsheet": (
        ("--explain", "t0", "--format", "csv"), "--explain cannot be combined with --format csv"),
    "a policy is known": (("--policy", "miror"), "no policy 'miror'; did you mean 'mirror'?"),
    "a policy file is there": (("--policy", "no.toml"), "no.toml: cannot be read: No such file"),
    "a kept node is there": (("--keep", "t9"), "--keep t9: no forward value or node has that name"),
    "a kept name is suggested": (("--keep", "tt1"), "did you mean 't1'?"),
    "a dropped node is there": (("--drop", "zz*"), "--drop zz*: no forward value or node"),
    "kept or dropped": (("--keep", "t1", "--drop", "t*"), "both kept and dropped"),
    "a value is there": (("--explain", "t_1"), "no value 't_1'; did you mean 't1'?"),
    "a checkpoint is there": (
        ("--report", "--checkpoints", "s11"), "'s11' does not exist; did you mean 's1'?"),
    "a file of checkpoints is there": (("--report", "--checkpoints", "@no"), "@no: cannot be read"),
    "no checkpoint at all": (("--report", "--checkpoints", ","), "no checkpoints are given"),
    "a symbol is there": (("--report", "--dim", "bath=3"), "--dim bath"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_together_is_refused_in_one_line(run, net, fixed, case):
    assert fixed.exists()
    flags, message = REFUSED[case]

    outcome = run("mirror", net, *flags)

    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err.splitlines()[-1]
    assert outcome.err.splitlines()[-1].startswith("gradtool: ")


def test_a_file_that_is_there_is_not_overwritten(run, net, tmp_path):
    (tmp_path / "deep.mirror.onnx").write_bytes(b"mine")

    outcome = run("mirror", net)

    assert outcome.code == 2
    assert "deep.mirror.onnx" in outcome.err
    assert "loss:" not in outcome.err  # refused before any work
    assert (tmp_path / "deep.mirror.onnx").read_bytes() == b"mine"
    assert run("mirror", net, "--force").code == 0


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("deep.onnx", "deep.mirror.onnx"),
        ("deep.grad.onnx", "deep.mirror.onnx"),
        ("deep.onnxtxt", "deep.mirror.onnxtxt"),
    ],
)
def test_it_is_written_beside_the_model(run, net, tmp_path, source, written):
    assert run("grad", net).code == 0
    text = onnx.printer.to_text(onnx.load(net))
    (tmp_path / "deep.onnxtxt").write_text(text)

    outcome = run("mirror", tmp_path / source)

    assert outcome.code == 0
    assert (tmp_path / written).exists()


@pytest.mark.exhaustive
def test_streams(shell, net, tmp_path):
    done = shell("mirror", "-", "--batch", "64", stdin=net.read_bytes())

    assert done.returncode == 0
    (tmp_path / "out.onnx").write_bytes(done.stdout)
    onnx.checker.check_model(tmp_path / "out.onnx")
    assert b"mirror: peak " in done.stderr
    assert b" may be recomputed, " in done.stderr


EXPLAINED = {
    "s1": "; applied",
    "t1": "kept: ",
    "m1": "computing it again: backward does not read it",
    "m1_mirror": "it is m1, which a plan computes again",
    "Sin_2/grad/SinGrad (workspace)": "workspace, ",
    "x": "input, 16.0 KiB, always alive",
    "w1": "parameter, 1.00 KiB, always alive",
    "loss": "computing it again: it is an output: it stays to the end",
    "w1_grad": "computing it again: it is computed in backward",
}


@pytest.mark.parametrize("value", EXPLAINED)
def test_every_kind_of_value_is_explained(run, net, value):
    sizes = ["--dim", "batch=256", "--kernels", "numpy"]
    out = run("mirror", "--explain", value, net, *sizes).out

    assert out.startswith(f"{value}: ")
    assert EXPLAINED[value] in out
    assert "read by " in out or "nobody reads it" in out or "workspace, " in out


def test_an_explanation_for_machines(run, net):
    found = document(run("mirror", "--explain", "s1", net, "--batch", "256", "--format", "json"))

    assert found["schema_version"] == 1
    assert (found["value"], found["bytes"]) == ("s1", 256 * 16 * 4)
    assert found["mirrored"] is True
    assert found["readers"][0]["op"] == "MatMul"
    assert all(isinstance(reader["index"], int) for reader in found["readers"])


def test_without_barriers_it_is_said_how_to_load(run, fixed, tmp_path):
    outcome = run("mirror", fixed, "-o", "plain.onnx", "--no-barrier")
    assert "stock onnxruntime merges recomputed nodes" in outcome.err

    outcome = run("mirror", fixed, "-o", "barrier.onnx")
    assert "stock onnxruntime merges" not in outcome.err
    assert "stock onnxruntime takes least with options.enable_mem_pattern" in outcome.err
    plain, barrier = (
        len(onnx.load(tmp_path / name).graph.node) for name in ("plain.onnx", "barrier.onnx")
    )
    assert barrier > plain


def test_fused_operators_as_functions(run, model, tmp_path):
    proto = deep("64")
    for node in proto.graph.node:
        if node.op_type == "Tanh":
            node.op_type = "Softmax"
    path = model(proto, "soft.onnx")

    assert run("mirror", path, "--functions", "-o", "f.onnx").code == 0
    assert onnx.load(tmp_path / "f.onnx").functions


LINEAR = "lin (float[4, 8] x) => (float[4, 3] y) { y = MatMul (x, w) }"


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_a_step_of_which_nothing_can_be_saved_has_one_row_and_a_sentence(run, model, form):
    path = model(LINEAR, w=np.ones((8, 3), np.float32))
    outcome = run("mirror", "--report", path, "--format", form)

    assert outcome.out.count("keep everything  ") + outcome.out.count("keep everything |") == 1
    assert "recompute sqrt  " not in outcome.out
    assert "nothing is saved: reorder only, mirror, recompute sqrt, " in outcome.out
    assert " take no less than keeping everything" in outcome.out


def test_machines_get_all_rows_of_such_a_step(run, model):
    path = model(LINEAR, w=np.ones((8, 3), np.float32))

    assert run("mirror", "--report", path, "--format", "csv").out.count("\n") > 6
    document = json.loads(run("mirror", "--report", path, "--format", "json").out)
    assert len({plan["peak_bytes"] for plan in document["plans"]}) == 1
    assert len(document["plans"]) == 6


def test_a_frontier_of_one_point_says_so(run, model):
    path = model(LINEAR, w=np.ones((8, 3), np.float32))
    outcome = run("recompute", "--frontier", path)

    assert outcome.out.count("nothing to trade: no plan was found below ") == 1
    assert outcome.out.count("+0.000 %") == 2


def test_sizes_that_are_assumed_are_named_where_nothing_is_saved(run, net):
    assert (
        "nothing is saved at batch=1, which is assumed: reorder"
        in run("mirror", "--report", net, "--kernels", "numpy").out
    )

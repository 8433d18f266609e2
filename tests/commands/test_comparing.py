"""`gradtool mirror --report`: plans side by side, in numbers and in every format."""

import json

import onnx
import pytest
from conftest import sampled
from deep import deep, document, report
from onnx import helper

PLANS = ["keep", "reorder", "mirror", "sqrt", "optimal 5 %", "optimal"]


def test_the_document_of_a_model(run, fixed):
    found = report(run, fixed)

    assert (found["schema_version"], found["model"], found["dims"]) == (1, str(fixed), {})
    assert [plan["plan"] for plan in found["plans"]] == PLANS
    keep, reorder, mirror, sqrt, *_ = found["plans"]
    assert (keep["saved_percent"], keep["extra_flops"], keep["max_batch"]) == (0, 0, None)
    assert reorder["extra_flops"] == 0
    assert 0 < mirror["extra_flops_percent"] < sqrt["extra_flops_percent"]
    for plan in found["plans"]:
        sizes = [size for key, size in plan.items() if key.endswith("_bytes") and size is not None]
        assert len(sizes) >= 4
        assert all(type(size) is int for size in sizes)
        assert plan["peak_bytes"] <= keep["peak_bytes"]
        saved = 100 * (1 - plan["peak_bytes"] / keep["peak_bytes"])
        assert plan["saved_percent"] == pytest.approx(saved, abs=1e-3)


def test_mirroring_pays_here(run, fixed):
    keep, _, mirror, *_ = report(run, fixed, "--kernels", "numpy")["plans"]

    assert mirror["peak_bytes"] < 0.8 * keep["peak_bytes"]


@pytest.mark.exhaustive
def test_several_models_are_a_list(run, net, fixed):
    outcome = run("mirror", "--report", net, fixed)

    assert outcome.code == 0
    assert outcome.out.count(" keep everything ") == 2
    for path in (net, fixed):
        assert f"\n{path}: mirror: " in outcome.out
    assert f"\n{net}: keep everything: " in outcome.out  # its formula
    listed = document(run("mirror", "--report", net, fixed, "--format", "json"))["models"]
    assert [each["model"] for each in listed] == [str(net), str(fixed)]


@pytest.mark.exhaustive
def test_checkpoints_are_a_row_of_the_report(run, fixed, tmp_path):
    (tmp_path / "names").write_text("s1\ns0\n")
    listed = report(run, fixed, "--checkpoints", "s0, s1")["plans"]

    assert [plan["plan"] for plan in listed] == [*PLANS, "checkpoints"]
    assert listed == report(run, fixed, "--checkpoints", "@names")["plans"]
    table = run("mirror", "--report", fixed, "--checkpoints", "s1", "--checkpoints", "s0").out
    assert "\n given checkpoints " in table


@pytest.mark.exhaustive
def test_a_stream_of_a_fixed_batch_has_no_largest_one(shell, net):
    asked = ("mirror", "--report", "-", "--memory", "1MiB")
    done = shell(*asked, "--batch", "3", stdin=net.read_bytes())

    assert done.returncode == 0
    assert b"-: no largest batch to find: standard input is read once\n" in done.stderr


@pytest.mark.exhaustive
def test_a_stream_has_the_largest_batch_of_its_file(shell, net):
    asked = ("recompute", "--max-batch", "--memory", "1MiB", "--format", "json")
    of_file = shell(*asked, net)
    of_stream = shell(*asked, "-", stdin=net.read_bytes())

    assert of_file.returncode == of_stream.returncode == 0
    assert json.loads(of_stream.stdout) == {**json.loads(of_file.stdout), "model": "-"}


@pytest.mark.exhaustive
def test_the_largest_batch_fits_and_one_more_does_not(run, net):
    memory = 32 << 10
    plans = report(run, net, "--memory", "32KiB")["plans"]

    batches = [plan["max_batch"] for plan in plans]
    assert 0 < batches[0] < batches[2]
    for batch, fits in ((batches[0], True), (batches[0] + 1, False)):
        peak = report(run, net, "--batch", batch)["plans"][0]["peak_bytes"]
        assert (peak <= memory) is fits


def test_the_largest_batch_has_a_column(run, net):
    out = run("mirror", "--report", net, "--memory", "4KiB").out

    assert "max batch @ 4.00 KiB" in out
    assert out.count("none\n") == len(PLANS)


def test_a_fixed_batch_does_not_grow(run, fixed):
    outcome = run("mirror", "--report", fixed, "--memory", "1GiB")

    assert outcome.code == 0
    assert f"{fixed}: no largest batch to find: its batch is fixed\n" in outcome.err


def test_open_sizes_give_formulas(run, net):
    outcome = run("mirror", "--report", net)

    assert "assumed batch=1 (give --dim batch=N)\n" in outcome.err
    lines = [line for line in outcome.out.splitlines() if "·batch + " in line]
    assert [line.partition(":")[0] for line in lines] == [
        "keep everything", "reorder only", "mirror", "recompute sqrt", "optimal within 5 % work",
        "recompute optimal",
    ]  # fmt: skip
    assert "·batch" not in run("mirror", "--report", net, "--batch", "8").out


@pytest.mark.exhaustive
@pytest.mark.parametrize("by", sampled(["op", "phase", "tensor", "module"]))
def test_parts_at_the_peak_add_up(run, fixed, by):
    plans = report(run, fixed, "--by", by)["plans"]

    for plan in plans:
        assert 0 <= plan["peak_bytes"] - sum(plan["parts"].values()) < plan["peak_bytes"] // 10
    out = run("mirror", "--report", fixed, "--by", by, "--format", "csv").out
    assert out.splitlines()[-1].startswith("peak,")


def test_top_limits_the_parts(run, fixed):
    rows = run("mirror", "--report", fixed, "--by", "tensor", "--top", "2", "--format", "csv").out

    assert len(rows.splitlines()) == 5
    assert " more," in rows.splitlines()[3]


@pytest.mark.exhaustive
def test_spreadsheets_and_pages(run, fixed):
    sheet = run("mirror", "--report", fixed, "--format", "csv").out.splitlines()
    page = run("mirror", "--report", fixed, "--format", "markdown").out

    assert sheet[0] == "plan,peak,saved,extra FLOPs"
    assert [line.split(",")[0] for line in sheet[1:]] == [
        "keep everything", "reorder only", "mirror", "recompute sqrt", "optimal within 5 % work",
        "recompute optimal", "lower bound",
    ]  # fmt: skip
    assert "| plan | peak | saved | extra FLOPs |" in page
    assert ", not measured (gradtool run --measure)" in page


HOSTILE = "t\x1b[31m\u202e|=1+1`"


@pytest.mark.exhaustive
def test_hostile_names_are_shown_and_never_obeyed(run, model):
    path = model(renamed(deep("256")), "hostile.onnx")

    for form in ("table", "csv", "markdown", "json"):
        top = () if form == "json" else ("--top", "30")
        outcome = run("mirror", "--report", path, "--by", "tensor", *top, "--format", form)
        assert outcome.code == 0
        assert "\x1b" not in outcome.out
        assert "\u202e" not in outcome.out
    outcome = run("mirror", "--explain", HOSTILE + "2", path)
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    assert run("mirror", path, "--keep", HOSTILE + "9").err.count("\x1b") == 0


def renamed(proto):
    """The model with the values t0, t1 … under hostile names."""
    for node in proto.graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name.startswith("t"):
                    names[index] = HOSTILE + name[1:]
    return proto


def test_operators_of_unknown_cost_are_said(run, model):
    proto = deep("64", layers=2)
    proto.graph.node.insert(0, helper.make_node("Unique", ["ids"], ["u"]))
    proto.graph.input.append(helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [4]))
    proto.graph.output.append(helper.make_tensor_value_info("u", onnx.TensorProto.INT64, ["n"]))
    path = model(proto, "unknown.onnx")

    outcome = run("mirror", "--report", path)

    assert outcome.code == 0
    assert "cost unknown, not in the FLOPs: Unique (1)\n" in outcome.out

"""`gradtool compare`: of models, plans, reports and baselines, what moved."""

import json

import jsonschema
import pytest
from deep import deep

NUMPY = ("--kernels", "numpy")  # whose steps are nodes


@pytest.fixture
def net(model):
    """`net.onnx`: three layers, a batch of 256."""
    return model(deep("256"), "net.onnx").name


@pytest.fixture
def more(model):
    """`more.onnx`: four of them."""
    return model(deep("256", layers=4), "more.onnx").name


def document(outcome):
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def compared(run, *arguments):
    """The comparisons in the JSON, which is as its schema says."""
    found = document(run("compare", *arguments, "--format", "json"))
    jsonschema.Draft202012Validator(document(run("schema", "compare"))).validate(found)
    return found["comparisons"]


def rows(found, part):
    return {row["name"]: row for row in found["parts"][part]}


def totals(found):
    return {row["name"]: (row["before"], row["now"]) for row in found["totals"]}


def written(run, tmp_path, name, *arguments):
    """The JSON that a command prints, in a file."""
    (tmp_path / name).write_text(run(*arguments, "--format", "json").out, encoding="utf-8")
    return name


def peak(run, *arguments):
    return document(run("report", *arguments, "--format", "json"))["models"][0]["peak_bytes"]


def test_a_model_with_one_more_layer(run, net, more):
    (found,) = compared(run, net, more, *NUMPY)

    assert (found["before"], found["now"]) == (net, more)
    assert totals(found)["peak"] == (peak(run, net, *NUMPY), peak(run, more, *NUMPY))
    assert rows(found, "tensor")["t3"]["why"] == "new"
    assert rows(found, "region")["parameters"]["moved"] == 1024
    assert rows(found, "node") == {}


@pytest.mark.parametrize("plan", ["keep", "mirror"])
def test_every_part_at_the_peak_adds_up(run, net, more, plan):
    (found,) = compared(run, net, more, "--plan", plan)
    was, now = totals(found)["peak"]

    assert sum(row["moved"] for row in found["parts"]["region"]) == now - was
    gaps = rows(found, "region").get("gaps", {"moved": 0})["moved"]
    for part in ("operator", "tensor"):
        assert sum(row["moved"] for row in found["parts"][part]) == now - was - gaps


def test_a_model_and_itself(run, net):
    (found,) = compared(run, net, net)

    assert not any(found["parts"].values())
    assert all(was == now for was, now in totals(found).values())
    assert "nothing moved by region at peak, operator at peak" in run("compare", net, net).out


def test_one_model_under_two_plans(run, net):
    (found,) = compared(run, net, "--plan", "mirror", *NUMPY)

    assert (found["before"], found["now"]) == ("net.onnx (keep)", "net.onnx (mirror)")
    assert set(rows(found, "node")) == {"Sin", "Sin_1"}
    assert rows(found, "tensor")["s0"]["why"] == "computed again; no longer held"
    assert totals(found)["recomputed"] == (0, 2)
    (back,) = compared(run, net, "--plan", "mirror", "--plan", "keep", *NUMPY)
    assert totals(back)["peak"] == totals(found)["peak"][::-1]


@pytest.mark.usefixtures("net")
def test_the_only_model_here_is_meant(run):
    outcome = run("compare", "--plan", "mirror", "--by", "node", *NUMPY)

    assert outcome.code == 0
    assert "model: net.onnx (the only one here)" in outcome.err
    assert "\n Sin_1 " in outcome.out


def test_a_written_model_of_a_plan_has_its_tensors_under_their_own_names(run, net):
    assert run("mirror", net).code == 0

    (written_model,) = compared(run, net, "net.mirror.onnx")
    (planned,) = compared(run, net, "--plan", "mirror")

    assert written_model["parts"] == planned["parts"]


@pytest.fixture
def plans(run, net):
    """Two plans of `net.onnx` in files."""
    for strategy in ("sqrt", "mirror"):
        assert run("recompute", net, "--strategy", strategy, "-o", f"{strategy}.json").code == 0
    return "sqrt.json", "mirror.json"


def test_plans_in_files(run, plans):
    (found,) = compared(run, *plans)

    assert (found["before"], found["now"]) == plans
    assert list(found["parts"]) == ["node"]
    assert rows(found, "node")["MatMul"] == {
        "name": "MatMul", "before": 1, "now": None, "moved": -1
    }  # fmt: skip


def test_plans_in_files_with_their_model(run, net, plans):
    (found,) = compared(run, *plans, "--model", net)
    (alone,) = compared(run, *plans)
    (named,) = compared(run, net, "--plan", "sqrt", "--plan", "mirror")

    assert found["parts"] == named["parts"]
    assert {n: totals(found)[n] for n in totals(alone)} == totals(alone)


def test_a_model_and_a_plan_of_it(run, net, plans):
    (found,) = compared(run, net, plans[1])
    (named,) = compared(run, net, "--plan", "mirror")

    assert found["parts"] == named["parts"]
    assert found["totals"] == named["totals"]


def test_reports(run, tmp_path, net, more):
    before = written(run, tmp_path, "before.json", "report", net)
    now = written(run, tmp_path, "now.json", "report", more)

    (found,) = compared(run, before, now)
    (models,) = compared(run, net, more)

    assert rows(found, "region") == rows(models, "region")
    assert found["unknown"] == []
    assert totals(found)["peak"] == totals(models)["peak"]


def test_a_report_and_a_model(run, tmp_path, net, more):
    before = written(run, tmp_path, "before.json", "report", net)

    (found,) = compared(run, before, more)

    assert found["unknown"] == [
        "operators, of which net.onnx (before) says nothing",
        "nodes, of which net.onnx (before) says nothing",
    ]


def test_reports_of_several_models_are_matched_by_name(run, tmp_path, net, more):
    before = written(run, tmp_path, "before.json", "report", net, more)
    now = written(run, tmp_path, "now.json", "report", more, more)
    now_text = (tmp_path / now).read_text(encoding="utf-8").replace("more.onnx", "new.onnx", 1)
    (tmp_path / now).write_text(now_text, encoding="utf-8")

    outcome = run("compare", before, now)

    assert outcome.out.splitlines()[0] == "more.onnx → more.onnx"
    assert "net.onnx: only before, not compared\n" in outcome.err
    assert "new.onnx: only now, not compared\n" in outcome.err


@pytest.mark.exhaustive
def test_tables_of_plans(run, tmp_path, net):
    before = written(run, tmp_path, "before.json", "mirror", "--report", net)
    now = written(run, tmp_path, "now.json", "mirror", "--report", net)

    found = compared(run, before, now)

    assert [each["now"] for each in found][:3] == [
        "net.onnx (keep)", "net.onnx (reorder)", "net.onnx (mirror)"
    ]  # fmt: skip
    assert all(was == is_now for each in found for was, is_now in totals(each).values())


@pytest.mark.exhaustive
def test_baselines(run, net, more):
    assert run("init", net, more).code == 0

    (found,) = compared(run, "gradtool-baseline/net.json", "gradtool-baseline/more.json")
    (models,) = compared(run, net, more, "--plan", "mirror")

    assert totals(found)["peak"] == totals(models)["peak"]
    assert rows(found, "tensor") == rows(models, "tensor")


@pytest.mark.exhaustive
def test_results_of_check(run, net, more):
    assert run("init", net, more).code == 0
    assert run("check", "--output", "json:before.json").code == 0

    found = compared(run, "before.json", "before.json")

    assert [each["before"] for each in found] == ["net", "more"]


@pytest.mark.parametrize("form", ["table", "csv", "markdown"])
def test_one_part_alone(run, net, more, form):
    line = ("compare", net, more, "--by", "tensor", "--top", "2", "--format", form)
    outcome = run(*line, *NUMPY)

    assert outcome.code == 0
    assert "Sin_2" in outcome.out
    assert "w3" not in outcome.out
    if form != "csv":
        assert "and 5 more: " in outcome.out


def test_csv_is_one_table(run, net, more):
    lines = run("compare", net, more, "--format", "csv").out.splitlines()

    assert lines[0] == "whole step,before,now,moved,share"
    assert {line.count(",") for line in lines} == {4}


def test_it_writes_nothing(run, net, more, tmp_path):
    before = sorted(tmp_path.iterdir())

    assert run("compare", net, more).code == 0
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.usefixtures("net")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("net.onnx",), "two are compared: give BEFORE and AFTER, or a model and --plan"),
        (("net.onnx", "net.onnx", "net.onnx"), "two are compared"),
        (("net.onnx", "--plan", "mirrr"), "no strategy 'mirrr'; did you mean 'mirror'?"),
        (("net.onnx", "missing.onnx"), "missing.onnx: no such file"),
        (("net.onnx", "missing.json"), "missing.json: cannot be read"),
        (("net.onnx", "odd.json"), "odd.json: is no report, plan or baseline of gradtool"),
        (
            ("odd.json", "odd.json", "--plan", "keep"),
            "hold what was planned",
        ),
        (("net.onnx", "damaged.json"), "damaged.json: is damaged"),
        (("net.onnx", "other.json", "--by", "tensor"), "tensors, of which other"),
    ],
)
def test_mistakes_are_one_line(run, tmp_path, arguments, message):
    (tmp_path / "odd.json").write_text('{"schema_version": 1}', encoding="utf-8")
    (tmp_path / "damaged.json").write_text(
        '{"schema_version": 1, "models": [{"alive": [{}]}]}', encoding="utf-8"
    )
    (tmp_path / "other.json").write_text(
        '{"schema_version": 1, "model": "other", "plans": [{"plan": "keep", "peak_bytes": 1}]}',
        encoding="utf-8",
    )

    outcome = run("--quiet", "compare", *arguments)

    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(("given", "said"), [
    (("one.json", "plan.json", "--model", "net.onnx", "--plan", "sqrt"),
     "files hold what was planned: leave out --plan"),
    (("net.onnx", "plan.json", "--plan", "sqrt", "--plan", "keep"),
     "one model is planned here: give --plan once"),
    (("one.json", "one.json", "--model", "net.onnx"),
     "--model net.onnx is of plans in files, and none is one: leave it out"),
    (("net.onnx", "one.json", "--model", "net.onnx", "--grad-buffers"),
     "--model net.onnx is of plans in files, and none is one: leave it out"),
])  # fmt: skip
def test_what_files_have_no_use_for_is_refused(run, net, tmp_path, given, said):
    written(run, tmp_path, "one.json", "report", net)
    run("recompute", net, "--strategy", "sqrt", "-o", "plan.json")

    outcome = run("compare", *given)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.splitlines()[-1] == f"gradtool: {said}"

import ast
import csv
import io
import json

import pytest
from conftest import TINY, build, tiny_weights

from gradtool.ops import gradients
from gradtool.ops import kernels as kernel

ACME = '<ir_version: 10, opset_import: ["" : 20, "com.acme" : 1]>'


def operators(outcome):
    return {row["operator"]: row for row in json.loads(outcome.out)["operators"]}


def test_every_rule_and_kernel_is_listed_once(run):
    found = operators(run("ops", "--format", "json"))

    assert found.keys() >= {rule.name for rule in gradients.rules()}
    assert found.keys() >= {entry.name for entry in kernel.kernels()}
    assert list(found) == sorted(found, key=lambda name: ("::" in name, name))


def test_a_row_says_what_is_registered(run):
    found = operators(run("ops", "--format", "json"))

    assert found["Exp"]["gradient"] == "yes"
    assert found["Exp"]["kernel"] == "arena"
    assert found["Exp"]["in_place_inputs"] == [0]
    assert found["Floor"]["gradient"] == "zero"


def test_missing_lists_standard_operators_only(run):
    found = operators(run("ops", "--missing", "--format", "json"))

    assert all("::" not in name for name in found)
    assert all("no" in (row["gradient"], row["kernel"]) for row in found.values())
    assert "Exp" not in found


def test_a_model_has_its_operators_counted(run, tiny_model):
    outcome = run("ops", tiny_model, "--format", "json")

    assert outcome.code == 0
    found = operators(outcome)
    assert {name: row["nodes"] for name, row in found.items()} == {
        "Add": 1, "Exp": 1, "MatMul": 1, "ReduceSum": 1,
    }  # fmt: skip
    assert all(row["gradient"] == row["kernel"] == "yes" for row in found.values())


def test_a_rule_that_is_missing_is_exit_3(run, model):
    path = model(build(TINY.replace("Exp (s)", "com.acme.Gate (s)"), ACME, **tiny_weights()))

    outcome = run("ops", path, "--missing")

    assert outcome.code == 3
    assert " com.acme::Gate       1   no         no       " in outcome.out
    assert " MatMul " not in outcome.out
    assert outcome.err == "gradtool: no gradient rule for com.acme::Gate (1)\n"


def test_a_rule_that_no_gradient_needs_is_not_missing(run, model):
    body = TINY.replace("h = MatMul", "t = com.acme.Count (k)\n    h = MatMul")
    body = body.replace("8] x)", "8] x, int64 k)").replace("loss)", "loss, int64 t)", 1)
    path = model(build(body, ACME, **tiny_weights()))

    outcome = run("ops", path, "--format", "json")

    assert outcome.code == 0
    assert operators(outcome)["com.acme::Count"]["gradient"] == "-"


def test_nothing_missing_is_said(run, tiny_model):
    outcome = run("ops", tiny_model, "--missing")

    assert (outcome.code, outcome.out) == (0, "nothing is missing\n")


def test_csv_has_a_row_per_operator(run, tiny_model):
    rows = list(csv.reader(io.StringIO(run("ops", tiny_model, "--format", "csv").out)))

    assert rows[0] == ["operator", "nodes", "gradient", "kernel", "first node"]
    assert len(rows) == 5


@pytest.mark.parametrize("op", ["com.acme::Gate", "Gemm", "LayerNormalization", "Concat", "Half+"])
def test_a_template_is_python(run, op):
    outcome = run("ops", "--template", op)

    assert outcome.code == 0
    assert f'@gradient("{op}")' in outcome.out
    ast.parse(outcome.out)

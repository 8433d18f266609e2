"""The table of operators, and the page that is made of it."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from residuals import residuals

from gradtool.graph.families import full_name
from gradtool.ops import gradients
from gradtool.ops import kernels as kernel
from gradtool.ops.conventions import CONVENTIONS
from gradtool.ops.traits import TRAITS
from gradtool.reports import facts, operators
from gradtool.text.table import markdown

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
STANDARD = 28  # the page lists what the newest standard says

of_this_standard = pytest.mark.skipif(
    onnx.defs.onnx_opset_version() != STANDARD, reason="another version of the standard"
)


@of_this_standard
def test_the_page_is_the_one_that_is_shipped():
    """Else: python -m gradtool.reports.operators > docs/operators.md."""
    assert PAGE.read_text(encoding="utf-8") == operators.page()


@pytest.mark.exhaustive
def test_declared_residuals_are_those_of_the_rules():
    """Else: `traits.py` of the family, and the page again."""
    declared = {
        full_name(t.domain, t.op): t.residuals
        for t in TRAITS.entries() if t.residuals is not None
    }  # fmt: skip

    assert declared == residuals()


def test_an_operator_has_its_traits_once():
    assert all(len(found) == 1 for found in TRAITS.by_operator().values())


def entries():
    return {e.operator: e for e in operators.registered()}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("op", "names"),
    [
        ("Tanh", ("output",)),
        ("Add", ()),
        ("MatMul", ("A", "B")),
        ("MaxPool", ("Indices",)),
        ("LayerNormalization", ("InvStdDev", "Mean", "Scale", "X")),
    ],
)
def test_a_row_says_what_is_kept(op, names):
    assert entries()[op].kept == names


def test_a_row_says_where_mathematics_leaves_a_choice():
    assert entries()["Abs"].conventions == ("x = 0: 0",)
    assert entries()["MatMul"].conventions == ()


@pytest.mark.parametrize(
    ("op", "types"),
    [
        ("Softmax", "float"),
        ("And", "bool"),
        ("Abs", "float, int, uint"),
        ("SequenceAt", "sequence"),
        ("Size", "float, int, uint, complex"),
        ("ConvInteger", "int8, uint8"),
        ("ai.gradtool::TanhGrad", "float"),
        ("com.acme::Gate", ""),
    ],
)
def test_types_are_those_of_the_standard(op, types):
    assert facts.types(op).startswith(types)


def test_opsets_are_those_of_the_standard():
    assert facts.opsets("Softmax") == (1, 11, 13)
    assert facts.opsets("com.acme::Gate") == ()


def test_a_kernel_without_an_array_library_runs_on_the_host():
    found = {k.name: k for k in kernel.kernels()}

    assert facts.cuda([found["Add"]]) == "cupy"
    assert facts.cuda([found["StringConcat"]]) == "host"
    assert facts.cuda([]) == "no"


def test_what_onnxruntime_runs_is_what_it_says_itself():
    ort = pytest.importorskip("onnxruntime")
    if not ort.__version__.startswith(f"{facts.ONNXRUNTIME}."):
        pytest.skip(f"onnxruntime {facts.ONNXRUNTIME} is not installed")
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    kernels = {
        (k.domain, k.op_name)
        for k in state.get_all_opkernel_def()
        if k.provider == "CPUExecutionProvider"
    }
    bodies = {
        (s.domain, s.name)
        for s in onnx.defs.get_all_schemas_with_history()
        if s.has_function or s.has_context_dependent_function
    }
    for entry in operators.registered():
        domain, op = facts.split_name(entry.operator)
        if domain == facts.DOMAIN or entry.operator == "Constant":
            continue
        said = "kernel" if (domain, op) in kernels else "body" if (domain, op) in bodies else "no"
        assert (entry.operator, entry.onnxruntime) == (entry.operator, said)


def test_csv_and_markdown_have_more_columns_than_a_terminal():
    rows = operators.registered()
    narrow, wide = (operators.registered_table(rows, full=full) for full in (False, True))

    assert [c.title for c in wide.columns][: len(narrow.columns)] == [
        c.title for c in narrow.columns
    ]
    assert [r[: len(narrow.columns)] for r in wide.rows] == list(narrow.rows)


def test_every_convention_is_on_the_page():
    table = operators.conventions_table()

    assert len(table.rows) == len(CONVENTIONS.entries())
    assert markdown(table) in operators.page()


def test_every_rule_of_the_standard_is_on_the_page():
    page = operators.page()

    assert all(f"| {rule.name} |" in page for rule in gradients.rules() if not rule.domain)

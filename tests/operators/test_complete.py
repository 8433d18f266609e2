"""Nothing is registered without a case, and nothing is emitted that cannot run."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import cases
import onnx_ir as ir
import onnx_shape_inference
import pytest
from cases import Floats
from checkers import build

import gradtool
from gradtool import gradients
from gradtool import kernels as kernel
from gradtool.emit.builder import Builder
from gradtool.functions.calls import expand
from gradtool.gradients.driver import differentiate
from gradtool.graph.composites import DOMAIN, composites
from gradtool.graph.families import FAMILIES, full_name, split_name
from gradtool.operators.updates import SPARSE, UPDATES
from gradtool.shapes import rules as shape_rules
from gradtool.shapes.inference import register_shapes

for family in FAMILIES:
    if find_spec(f"operators.{family}"):
        import_module(f"operators.{family}")
HERE = Path(__file__).parent
PACKAGE = Path(gradtool.__file__).parent
RULES = gradients.rules()
WHOLE = {op for whole in cases.WHOLE for op in whole.ops}
TESTED = WHOLE | {full_name(*split_name(c.op)) for c in cases.CASES}
DIFFERENTIATED = WHOLE | {full_name(*split_name(c.op)) for c in cases.CASES if c.gradient}


# What no finite difference shows, and the test that covers it.
STRAIGHT = "passes/test_straight_through.py::test_gradients_are_those_of_torch"
REFUSED = "operators/test_refusals.py::test_rounding_has_no_derivative_without_ste"
MASKED = "passes/test_masks.py::test_the_choice_has_the_bits_of_the_composite"
TWICE = "operators/test_second_order.py::test_second_gradients_agree_with_finite_differences"
ROWS = "passes/test_sparse.py::test_a_hundred_steps_are_those_of_torch"
STEPS = "passes/test_update_rules.py::test_a_hundred_steps_are_those_of_the_reference"
DRAWN = "passes/test_counted_dropout.py::test_stock_onnxruntime_draws_the_same_bits"
DROPPED = (
    "passes/test_counted_dropout.py"
    "::test_gradients_are_those_of_finite_differences_with_the_mask_fixed"
)
NORMED = "ranks/test_sync_batchnorm.py::test_statistics_are_those_of_one_process"
STAGED = "ranks/test_stages.py::test_stages_train_as_one_process_does"
GIVEN = "ranks/test_stages.py::test_a_parameter_of_several_stages_belongs_to_the_first"
CUT = "ranks/test_sharding.py::test_every_optimizer_comes_to_what_one_process_does"
BLOCKS = "ranks/test_row_tables.py::test_fifty_steps_are_those_of_one_process"
ELSEWHERE = {
    **dict.fromkeys((f"{DOMAIN}::{name}" for name in UPDATES), STEPS),
    **dict.fromkeys((f"{DOMAIN}::{name}" for name in (*SPARSE, "RowSlots")), ROWS),
    f"{DOMAIN}::FactoredDirection": STEPS,
    "ai.gradtool::ConvGradWeight": TWICE,
    "ai.gradtool::DropoutGrad": DROPPED,
    "ai.gradtool::DropoutMask": DRAWN,
    "BitCast": "operators/test_refusals.py::test_bits_read_as_their_own_type_pass_the_gradient_on",
    "DynamicQuantizeLinear": REFUSED,
    "QuantizeLinear": REFUSED,
    "ai.gradtool::FakeQuantize": STRAIGHT,
    "ai.gradtool::FakeQuantizeGrad": STRAIGHT,
    "ai.gradtool::FakeQuantizeGradScale": STRAIGHT,
    "ai.gradtool::RanksMean": NORMED,
    "ai.gradtool::RanksMoments": NORMED,
    "ai.gradtool::RanksPart": CUT,
    "ai.gradtool::RanksRowSums": BLOCKS,
    "ai.gradtool::RanksRows": BLOCKS,
    "ai.gradtool::StageGive": GIVEN,
    "ai.gradtool::StageReceive": STAGED,
    "ai.gradtool::StageSend": STAGED,
    "ai.gradtool::StageSent": STAGED,
    "ai.gradtool::MaskGrad": MASKED,
    "ai.gradtool::MaxPoolTraining": "passes/test_narrow_places.py::test_gradients_keep_their_bits",
}


def backward(case: cases.Case) -> ir.Model:
    """A case and its gradients, nothing pruned and nothing computed."""
    model, _ = build(case)
    op = Builder(model)
    wrt = [
        v for v, given in zip(model.graph.node("node").inputs, case.inputs, strict=False)
        if isinstance(given, Floats) and not given.fixed
    ]  # fmt: skip
    heads = {
        v: ir.Value(name=f"c_{v.name}", shape=v.shape, type=v.type)
        for v in model.graph.outputs
        if v.dtype is not None and v.dtype.is_floating_point()
    }
    differentiate(op, heads, wrt)
    return model


Use = dict[tuple[str, str, int], str]


@pytest.fixture(scope="module")
def emitted() -> tuple[Use, Use]:
    """Every operator in gradients and in bodies, with the case that it came up in first."""
    calls: Use = {}
    plain: Use = {}
    for case in cases.CASES:
        if case.gradient:
            model = backward(case)
            _collect(calls, model, case.id)
            expand(model, lambda _: False)
            _collect(plain, model, case.id)
    return calls, plain


def _collect(found: Use, model: ir.Model, where: str) -> None:
    for node in model.graph.all_nodes():
        version = 1 if node.domain == DOMAIN else model.graph.opset_imports[node.domain]
        found.setdefault((node.domain, node.op_type, version), where)


def _missing(found: Use, has) -> dict[str, str]:
    return {full_name(d, op): where for (d, op, v), where in found.items() if not has(d, op, v)}


def test_every_rule_has_a_case():
    smooth = {r.name for r in RULES if not r.zero}

    assert sorted(smooth - DIFFERENTIATED - set(ELSEWHERE)) == []


@pytest.mark.parametrize("where", sorted(set(ELSEWHERE.values())))
def test_what_has_no_case_has_a_test(where):
    file, name = where.split("::")

    assert f"def {name}(" in (HERE.parent / file).read_text(encoding="utf-8")


def test_every_operator_with_zero_gradient_has_a_case():
    assert sorted({r.name for r in RULES if r.zero} - TESTED - set(ELSEWHERE)) == []


@pytest.mark.exhaustive
def test_every_kernel_has_a_case(emitted):
    calls, plain = emitted
    seen = TESTED | {full_name(d, op) for d, op, _ in (*calls, *plain)}

    assert sorted({k.name for k in kernel.kernels()} - seen - set(ELSEWHERE)) == []


@pytest.mark.exhaustive
def test_every_composite_is_emitted_by_a_rule(emitted):
    used = {full_name(*key[:2]) for key in emitted[0]} | set(ELSEWHERE)

    assert sorted({full_name(DOMAIN, name) for name in composites()} - used) == []


@pytest.mark.exhaustive
def test_every_operator_that_a_rule_emits_has_a_kernel(emitted):
    assert _missing(emitted[0], lambda *key: kernel.find(*key) is not None) == {}


@pytest.mark.exhaustive
def test_every_operator_that_a_body_emits_has_a_kernel(emitted):
    assert _missing(emitted[1], lambda *key: kernel.find(*key) is not None) == {}


@pytest.mark.exhaustive
def test_every_operator_that_is_emitted_has_a_shape_function(emitted):
    register_shapes()
    shape_rules.register()
    registry = onnx_shape_inference.registry

    def has(domain, op, version):
        return registry.get(domain, op, version=version) is not None

    assert _missing(emitted[0] | emitted[1], has) == {}


@pytest.mark.exhaustive
def test_bodies_hold_standard_operators_only(emitted):
    assert sorted({f"{d}::{op}" for d, op, _ in emitted[1] if d} - TESTED) == []


REGISTERS = re.compile(
    r"^(@(gradient|composite|kernel|pointwise)|zero_gradient|case)\(", re.MULTILINE
)


@pytest.mark.parametrize(
    "room", [PACKAGE / "gradients", PACKAGE / "functions", PACKAGE / "kernels", HERE]
)
def test_every_file_that_registers_something_is_a_family(room):
    """Another file belongs to one, and says so by its name (`_name.py`)."""
    files = [p for p in room.glob("*.py") if not p.stem.startswith(("_", "test_"))]
    registering = {p.stem for p in files if REGISTERS.search(p.read_text(encoding="utf-8"))}

    assert sorted(registering - set(FAMILIES)) == []


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_with_rules_or_kernels_has_cases(name):
    rooms = ("gradients", "kernels")
    if any((PACKAGE / room / f"{name}.py").exists() for room in rooms):
        assert (HERE / f"{name}.py").exists()


def test_no_two_cases_are_the_same():
    seen = [
        (c.op, c.opset, c.outputs, repr(sorted(c.attributes.items())), *map(repr, c.inputs))
        for c in cases.CASES
    ]

    assert sorted({key for key in seen if seen.count(key) > 1}) == []

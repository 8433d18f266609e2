"""Nothing is registered without a case, and nothing is emitted that cannot run."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import cases
import onnx_ir as ir
import onnx_shape_inference
import pytest
from checkers import build, free_inputs

import gradtool
from gradtool.emit.builder import Builder
from gradtool.graph.composites import DOMAIN, composites
from gradtool.graph.families import FAMILIES, full_name, split_name
from gradtool.operators.updates import SPARSE, UPDATES
from gradtool.ops import gradients
from gradtool.ops import kernels as kernel
from gradtool.ops.composites.calls import expand
from gradtool.ops.driver import differentiate
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
    "ai.gradtool::MaxPoolTraining": "passes/test_narrow_argmax.py::test_gradients_keep_their_bits",
}


def backward(case: cases.Case) -> ir.Model:
    """A case and its gradients, nothing pruned and nothing computed."""
    model, _ = build(case)
    op = Builder(model)
    heads = {
        v: ir.Value(name=f"c_{v.name}", shape=v.shape, type=v.type)
        for v in model.graph.outputs
        if v.dtype is not None and v.dtype.is_floating_point()
    }
    differentiate(op, heads, free_inputs(model, case))
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


def test_every_file_that_registers_cases_is_a_family():
    """Another file belongs to one, and says so by its name (`_name.py`)."""
    files = [p for p in HERE.glob("*.py") if not p.stem.startswith(("_", "test_"))]
    registering = {p.stem for p in files if REGISTERS.search(p.read_text(encoding="utf-8"))}

    assert sorted(registering - set(FAMILIES)) == []


# What ranks tell each other, and what updates parameters, is tested where it is used.
WITHOUT_CASES = {"composites", "ranks", "shared", "update"}


@pytest.mark.parametrize("folder", sorted(p for p in (PACKAGE / "ops").iterdir() if p.is_dir()),
                         ids=lambda p: p.name)  # fmt: skip
def test_a_family_with_rules_or_kernels_has_cases(folder):
    files = (*folder.glob("gradient*.py"), *folder.glob("kernel*.py"))
    registers = any(REGISTERS.search(p.read_text(encoding="utf-8")) for p in files)

    assert not registers or folder.name in WITHOUT_CASES or (HERE / f"{folder.name}.py").exists()


PARTS = {
    "kernel": {"kernel"}, "cost": {"kernel", "cost"}, "native": {"kernel", "native"},
    "body": {"body"}, "gradient": {"body", "gradient"},
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_an_operator_knows_parts_below_it_alone(part):
    """Kernels know no gradients, gradients no kernels; `shared` and what is no part is known."""
    found = set()
    for path in (PACKAGE / "ops").rglob(f"{part}*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = getattr(node, "module", None) or ""
            if module.startswith("gradtool.ops.") and path.parent.name != "ops":
                names = [module.rpartition(".")[2], *(a.name for a in node.names)]
                found |= {name.partition("_")[0] for name in names} & set(PARTS)

    assert found <= PARTS[part] | {part}


def test_no_two_cases_are_the_same():
    seen = [
        (c.op, c.opset, c.outputs, repr(sorted(c.attributes.items())), *map(repr, c.inputs))
        for c in cases.CASES
    ]

    assert sorted({key for key in seen if seen.count(key) > 1}) == []

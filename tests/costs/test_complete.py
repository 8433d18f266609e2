"""Every kernel is counted or says why not, and composites count what their bodies would."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import cases
import numpy as np
import pytest
from checkers import build, differentiated
from conftest import sampled

from gradtool.graph.composites import DOMAIN, composites
from gradtool.graph.families import FAMILIES, full_name
from gradtool.graph.specs import Spec
from gradtool.ops import costs
from gradtool.ops.composites.calls import expand
from gradtool.ops.kernels import kernels
from gradtool.ops.traits import TRAITS
from gradtool.program import Program
from gradtool.program.flatten import flatten

for family in FAMILIES:
    if find_spec(f"operators.{family}"):
        import_module(f"operators.{family}")
KERNELS = {k.name: k for k in kernels()}
UNCOUNTED = {full_name(t.domain, t.op) for t in TRAITS.entries() if t.uncounted}
OPEN = ("Range", "Unique")  # no program of these cases has only known sizes


def _way(case: cases.Case) -> tuple[object, ...]:
    """How an operator is called: which operands are there, which options are given."""
    absent = tuple(i is None for i in case.inputs)
    return case.op, absent, tuple(sorted(case.attributes)), case.outputs, case.gradient


def _modes(case: cases.Case) -> tuple[object, ...]:
    return tuple(value for value in case.attributes.values() if isinstance(value, str))


KNOWN = [c for c in cases.CASES if c.op not in OPEN]
CASES = list({(*_way(c), *_modes(c)): c for c in KNOWN}.values())
DIFFERENTIATED = list({_way(c): c for c in KNOWN if c.gradient}.values())
COUNTED = sorted({c.op for c in CASES})

# Their bodies compute positions with tensors of integers, which kernels know without.
BY_POSITION = {
    f"{DOMAIN}::{name}"
    for name in (
        "Col2ImGrad", "GatherElementsGrad", "GatherGrad", "GatherNDGrad", "PadGrad", "ResizeGrad",
        "RoiAlignGrad", "RoiAlignGradRois", "RoiAlignMaxGrad", "RoiAlignMaxGradRois", "SliceGrad",
        "TensorScatterGrad",
    )
}  # fmt: skip


def program_of(case: cases.Case, *, expanded: bool = False) -> Program:
    """A case with its gradients, perhaps with composites replaced by standard operators."""
    model = differentiated(case)[0] if case.gradient else build(case)[0]
    if expanded:
        expand(model, lambda _: False)
    return flatten(model)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_kernel_has_a_cost_or_a_reason_to_have_none(name):
    kernel = KERNELS[name]
    found = costs.find(kernel.domain, kernel.op, max(kernel.since, 17))

    assert (found is None) == (name in UNCOUNTED)


def test_costs_and_reasons_are_of_operators_that_have_a_kernel():
    counted = set(costs.COSTS.by_operator())

    assert counted <= {(k.domain, k.op) for k in KERNELS.values()}
    assert set(KERNELS) >= UNCOUNTED


@pytest.mark.parametrize("name", sorted(composites()))
def test_a_composite_has_a_cost_or_a_reason_to_have_none(name):
    assert (costs.find(DOMAIN, name, 1) is None) == (f"{DOMAIN}::{name}" in UNCOUNTED)


def test_an_operator_that_nobody_registered_is_unknown():
    assert costs.flops("com.acme", "Gate", 1, [], [], {}) is None


def test_an_option_that_no_formula_knows_makes_the_count_unknown():
    scores, labels = Spec((3, 4), np.dtype(np.float32)), Spec((3,), np.dtype(np.int64))
    loss = Spec((), np.dtype(np.float32))
    given = "NegativeLogLikelihoodLoss", 20, [scores, labels], [loss]

    assert costs.flops("", *given, {"reduction": "sum"}) == 3 + 3
    assert costs.flops("", *given, {"reduction": "product"}) is None


def test_a_plug_in_registers_the_count_of_its_operator(monkeypatch):
    assert costs.find("com.acme", "Gate", 1) is None
    monkeypatch.setitem(costs.COSTS.by_operator(), ("com.acme", "Gate"), [])

    @costs.cost("com.acme::Gate", since=2)
    def gate(x, *, out, sharp=0):
        return 5 * len(x.shape) + sharp + len(out)

    made = Spec((3, 4), np.dtype(np.float32))
    assert costs.flops("com.acme", "Gate", 2, [made], [made], {"sharp": 1}) == 12
    assert costs.flops("com.acme", "Gate", 1, [made], [made], {}) is None


@pytest.mark.parametrize("op", sampled(COUNTED))
def test_steps_of_known_sizes_are_counted_and_others_are_not(op):
    for case in (c for c in CASES if c.op == op):
        program = program_of(case)
        for step in program.steps:
            known = step.op not in UNCOUNTED and not _asks_regions(step.op, case)
            expected = known and not program.is_dynamic(step)
            assert isinstance(step.flops, int) == expected, f"{case.id}: {step.op}"
            assert step.moved >= 0
            assert step.flops is None or step.flops >= 0


def _asks_regions(op: str, case: cases.Case) -> bool:
    """The samples of a region are as many as its size says, unless their number is given."""
    given = case.attributes
    return "RoiAlign" in op and given.get("mode") == "max" and not given.get("sampling_ratio")


# What these compute of constants alone is known in a body before it runs, and not counted there.
FOLDED = {"DequantizeLinear"}


@pytest.mark.parametrize("op", sampled(sorted({c.op for c in DIFFERENTIATED})))
def test_gradients_count_no_more_than_their_bodies_and_no_less_than_a_quarter(op):
    """A kernel computes some activations of RNN that a body can prune: hence the seventh."""
    for case in (c for c in DIFFERENTIATED if c.op == op):
        program = program_of(case)
        found = costs.total(program)
        if found is None or BY_POSITION & {step.op for step in program.steps}:
            continue
        body = costs.total(program_of(case, expanded=True))

        assert body is not None
        assert body <= 4 * found, case.id
        assert op in FOLDED or 7 * found <= 8 * body, case.id

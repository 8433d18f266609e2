"""Groups of elementwise steps as one program of the library (`program/fusion.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.graph.specs import Spec
from gradtool.ops.elementwise.native import Operation, bind, work_of
from gradtool.ops.native import Bound, native
from gradtool.ops.shared.types import Array, Arrays, Specs

GROUP = "ai.gradtool::Elementwise"
MOST = 24  # operations: with as many leaves and numbers each, registers are enough


def _fits() -> bool:
    return True


def _work(*specs: Spec, out: Specs, operations: Sequence[Operation]) -> list[Spec]:
    return work_of(operations, specs, out[0])


def _method(*, operations: Sequence[Operation]) -> str:
    return " ".join(name for name, *_ in operations)


@native(GROUP, fits=_fits, work=_work, layouts="alike", strided=True, method=_method)
def group(*inputs: Array, out: Arrays, work: Arrays, operations: Sequence[Operation]) -> Bound:
    """Each operation in its turn, on a block that stays in cache."""
    return bind(operations, inputs, out, work)

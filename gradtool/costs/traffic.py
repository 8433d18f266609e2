"""The bytes that a step reads and writes, if every operand is read once and written once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gradtool.costs.turns import over_bodies
from gradtool.graph.specs import Spec
from gradtool.kernels.bodies import Body

# Operators that read no more of input 0 than they write.
PARTIAL = frozenset({
    "CenterCropPad", "Gather", "GatherElements", "GatherND", "Slice",
    "ai.onnx.ml::ArrayFeatureExtractor",
})  # fmt: skip

# The input of which an operator sees only the shape or the type.
UNREAD = MappingProxyType({
    "CastLike": 1, "EyeLike": 0, "RandomNormalLike": 0, "RandomUniformLike": 0, "Shape": 0,
    "Size": 0,
})  # fmt: skip


def moved(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    op: str = "",
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Bytes read and written by one call of the operator of the full name `op`.

    An operand that is given twice is read twice; known numbers on the host are not read.  The
    bodies of control flow count as often as they run; where that is not known, what they move is
    left out.
    """
    written: int = sum(spec.bytes for spec in outputs if spec is not None)
    read = sum(
        _read(op, slot, spec, written) for slot, spec in enumerate(inputs) if isinstance(spec, Spec)
    )
    return read + written + (over_bodies(op, inputs, attributes, _of_steps) or 0)


def _read(op: str, slot: int, spec: Spec, written: int) -> int:
    if UNREAD.get(op) == slot:
        return 0
    return min(spec.bytes, written) if slot == 0 and op in PARTIAL else spec.bytes


def _of_steps(program: Body) -> int:
    return sum(step.moved for step in program.steps)

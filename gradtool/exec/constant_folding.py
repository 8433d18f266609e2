"""A kernel called before a run, on known inputs.

This plays the role `evaluate` (see `gradtool.shapes.folding`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph.attributes import arguments
from gradtool.graph.specs import Spec
from gradtool.ops import costs, kernels
from gradtool.ops.kernels import Kernel
from gradtool.ops.shared.call import results, spec_of
from gradtool.shapes.folding import Evaluated

# So many floating-point operations count as a byte.
FLOPS_A_BYTE = 16

Array = np.ndarray[Any, Any]


def evaluate(
    node: ir.Node,
    version: int,
    inputs: Sequence[Array | None],
    out: Sequence[Spec | None],
    least: Sequence[Spec | None],
    most: int,
) -> Evaluated | None:
    """The outputs of a node that reads `inputs`; None if no kernel may tell within `most` bytes.

    `out` has what is known of each output, `least` at least its type where it is wanted.
    """
    found = kernels.find(node.domain, node.op_type, version)
    if found is None or not found.ahead:
        return None
    if not found.chooses and any(s is None for s, m in zip(out, least, strict=True) if m):
        return None
    given = arguments(node)
    try:
        cost = _cost(found, version, inputs, least, given, most)
    except Exception:  # noqa: BLE001 - the run says what is wrong, if it ever gets there
        return None
    if cost > most:
        return None
    try:
        with np.errstate(all="ignore"):
            return Evaluated(cost, results(np, found, inputs, out, given))
    except Exception:  # noqa: BLE001 - as above
        return Evaluated(cost, None)


def _cost(
    found: Kernel,
    version: int,
    inputs: Sequence[Array | None],
    out: Sequence[Spec | None],
    given: dict[str, Any],
    most: int,
) -> int:
    """The bytes that a call reads, writes and works in; a few operations count as one."""
    sized = [
        array if array is None or slot in found.host else spec_of(array)
        for slot, array in enumerate(inputs)
    ]
    read = [array for array in inputs if array is not None and array.strides.count(0) == 0]
    total = sum(a.nbytes for a in read) + sum(spec.bytes for spec in out if spec is not None)
    if total > most:
        return total
    flops = costs.flops(found.domain, found.op, version, sized, out, given)
    if flops is None:  # it may compare all with all
        flops = sum(array.size for array in read) ** 2
    work = () if found.allocating else found.workspace(sized, out, given)
    return total + flops // FLOPS_A_BYTE + sum(spec.bytes for spec in work)

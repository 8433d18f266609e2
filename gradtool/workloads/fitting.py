"""A node of a source whose inputs do not fit each other, found by its kernel."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from gradtool.graph.attributes import arguments
from gradtool.graph.error_context import blamed
from gradtool.graph.names import label
from gradtool.graph.specs import Spec, spec_of
from gradtool.ops import kernels
from gradtool.ops.shared.call import results

MOST_BYTES = 2**24  # of the values of a node that is tried


def require_fit(model: ir.Model) -> None:
    """Try every small node of forward on zeros.

    ONNX's checker lets misfits pass that no runtime computes, and refuses what is made of them.

    Raises:
        NodeFailed: naming the first node whose kernel fails.
    """
    for node in model.graph:
        version = model.graph.opset_imports.get(node.domain, 0)
        kernel = kernels.find(node.domain, node.op_type, version)
        specs = [None if v is None else spec_of(v) for v in node.inputs]
        out = [spec_of(v) for v in node.outputs]
        given = [None if v is None else ir.convenience.get_const_tensor(v) for v in node.inputs]
        known = all(v is None or s is not None for v, s in zip(node.inputs, specs, strict=True))
        if kernel is None or not known or None in out or _bytes([*specs, *out]) > MOST_BYTES:
            continue
        arrays = [
            None if s is None else np.zeros(s.shape, s.dtype) if t is None else t.numpy()
            for s, t in zip(specs, given, strict=True)
        ]
        with blamed(partial(label, node), "its kernel"), np.errstate(all="ignore"):
            results(np, kernel, arrays, out, arguments(node))


def _bytes(specs: list[Spec | None]) -> int:
    return sum(spec.bytes for spec in specs if spec is not None)

"""The operators of a model, and their kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph import walk
from gradtool.graph.composites import DOMAIN
from gradtool.graph.families import full_name
from gradtool.ops import kernels as registry
from gradtool.ops.kernels import Kernel


def has_kernel(composite: str) -> bool:
    return registry.find(DOMAIN, composite, 1) is not None


def operators_of(model: ir.Model) -> Counter[tuple[str, str]]:
    """The number of nodes of each operator, by domain and name."""
    return Counter((node.domain, node.op_type) for node in walk.nodes(model.graph))


def require_kernels(model: ir.Model, counts: Mapping[tuple[str, str], int]) -> None:
    """Raise UsageError naming all operators without a kernel."""
    missing: dict[str, int] = {}
    for (domain, op), count in counts.items():
        version = model.graph.opset_imports.get(domain, 1)
        if op != "Constant" and registry.find(domain, op, version) is None:
            name = full_name(domain, op)
            missing[name] = missing.get(name, 0) + count
    if missing:
        rows = ", ".join(f"{op} ({count} nodes)" for op, count in sorted(missing.items()))
        raise UsageError(f"no kernel to run {rows}; try --engine ort")


class Operator(NamedTuple):
    """An operator of a model: its full name, its opset, its kernel."""

    name: str
    version: int
    kernel: Kernel | None


class Operators:
    """The operators of a model, each looked up once."""

    def __init__(self, versions: Mapping[str, int]) -> None:
        self._versions = versions
        self._known: dict[tuple[str, str], Operator] = {}

    def of(self, node: ir.Node) -> Operator:
        """The operator of a node."""
        domain, op = key = node.domain, node.op_type
        if key not in self._known:
            version = self._versions.get(domain, 1)
            found = registry.find(domain, op, version)
            self._known[key] = Operator(full_name(domain, op), version, found)
        return self._known[key]

    def kernel(self, node: ir.Node) -> Kernel | None:
        """The kernel of a node."""
        return self.of(node).kernel

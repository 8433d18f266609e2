"""Outputs as views of an input, if all their readers take strided ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph.predicates import is_used
from gradtool.graph.specs import Spec, is_contiguous
from gradtool.graph.stages import clones, original, stage
from gradtool.ops.kernels import Kernel, Window

_OPERANDS = 2  # of a product to which nothing is added


class Views:
    """The readers of a graph's values, and the instances of recomputed ones."""

    def __init__(self, graph: ir.Graph, kernel_of: Callable[[ir.Node], Kernel | None]) -> None:
        self._graph = graph
        self._kernel_of = kernel_of
        self._clones = clones(graph)

    def windows(
        self,
        node: ir.Node,
        found: Kernel,
        specs: Sequence[Any],
        strides: tuple[int, ...],
        out: Sequence[Spec | None],
        attributes: Mapping[str, Any],
    ) -> Sequence[Window] | None:
        """Offset and strides in bytes of each output on input 0; None if they must be computed.

        `specs` and `out` are the known specs of inputs and outputs, `strides` those of input 0.
        """
        if any(s is None for s in out) or not _all_known(specs, found):
            return None
        windows = found.windows(specs, strides, [s for s in out if s is not None], attributes)
        if windows is None:
            return None
        fit = [
            is_contiguous(spec, window[1]) or self._takes_strides(value, spec, window[1])
            for value, spec, window in zip(node.outputs, out, windows, strict=True)
            if spec is not None and any(map(is_used, self._twins(value)))
        ]
        return windows if all(fit) else None

    def turns(self, value: ir.Value) -> bool:
        """Whether a matrix had better lie by column: a gradient whose transpose alone is read.

        That is then a view of it, and nothing is copied: `(A B)ᵀ = Bᵀ Aᵀ`.
        """
        twins = self._twins(value)
        makers = [twin.producer() for twin in twins]
        backward = any(node is not None and stage(node) == "backward" for node in makers)
        return backward and all(map(self._is_turned, twins))

    def _is_turned(self, value: ir.Value) -> bool:
        """Whether a product of two matrices is read by a Transpose and nobody else."""
        made, uses = value.producer(), value.uses()
        if made is None or made.op_type != "Gemm" or made.domain or len(uses) != 1:
            return False
        (reader,) = (use.node for use in uses)
        turned = reader.op_type == "Transpose" and not reader.domain and _reverses(reader)
        here = reader.graph is self._graph and not value.is_graph_output()
        return len(made.inputs) == _OPERANDS and turned and here

    def _takes_strides(self, value: ir.Value, spec: Spec, strides: tuple[int, ...]) -> bool:
        """Whether all readers accept these strides, and they are kind to matrix products."""
        if any(twin.is_graph_output() for twin in self._twins(value)):
            return False
        last = [
            stride for size, stride in zip(spec.shape[-2:], strides[-2:], strict=True) if size > 1
        ]
        if last and min(last) != spec.dtype.itemsize:
            return False
        users = [use.node for twin in self._twins(value) for use in twin.uses()]
        if any(n.graph is not self._graph for n in users):  # subgraphs are given gapless arrays
            return False
        kernels = [self._kernel_of(n) for n in users]
        return all(k is not None and k.strided for k in kernels)

    def _twins(self, value: ir.Value) -> list[ir.Value]:
        """The instances of a recomputed value: they must all lie in the same way.

        The bits of a matrix product depend on how its operands lie, and recomputing a value for
        some of its readers shall not change any bit.
        """
        node = value.producer()
        if node is None or not self._clones:
            return [value]
        twins = self._clones.get(original(node), [node])
        index = value.index() or 0
        alike = (twin for twin in twins if twin.op_type == node.op_type)
        return [twin.outputs[index] for twin in alike if index < len(twin.outputs)]


def _reverses(node: ir.Node) -> bool:
    """Whether a Transpose turns a matrix round."""
    perm = node.attributes.get("perm")
    return perm is None or list(perm.as_ints()) == [1, 0]


def _all_known(specs: Sequence[Any], found: Kernel) -> bool:
    """Whether every present host input is a constant."""
    return all(
        s is None or isinstance(s, np.ndarray) for slot, s in enumerate(specs) if slot in found.host
    )

"""Declarations of kernels and the cost model for steps, computed once for like ones."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradtool.graph.families import full_name
from gradtool.graph.specs import Spec
from gradtool.ops.kernels import Kernel


@dataclass(frozen=True, slots=True)
class Declaration:
    """Workspace and costs of a step, in the fields of `Step`."""

    workspace: tuple[Spec, ...]
    scratch_bytes: int
    flops: int | None
    moved: int


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a kernel: operands, results, attributes.

    `operands` are specs, known arrays where the kernel wants them on the host, None where absent
    or where the shape depends on data; `wanted` are the results that are read, `results` all that
    there are. A call is `dynamic` if the shape of something that it reads or writes depends on
    data.
    """

    kernel: Kernel
    version: int
    operands: Sequence[Any]
    wanted: Sequence[Spec | None]
    results: Sequence[Spec | None]
    attributes: Mapping[str, Any]
    dynamic: bool

    def declared(self, *, priced: bool) -> Declaration:
        """The declaration by the kernel and, if `priced`, the cost model."""
        found, flops, moved = self.kernel, None, 0
        if priced:
            from gradtool.ops import costs

            name, operator = full_name(found.domain, found.op), (found.domain, found.op)
            moved = costs.moved(self.operands, self.wanted, op=name, attributes=self.attributes)
            if not self.dynamic:
                flops = costs.flops(
                    *operator, self.version, self.operands, self.wanted, self.attributes
                )
        if self.dynamic:
            return Declaration((), 0, None, moved)
        return Declaration(
            workspace=found.workspace(self.operands, self.wanted, self.attributes),
            scratch_bytes=found.scratch_bytes(self.operands, self.results, self.attributes),
            flops=flops,
            moved=moved,
        )


class Declarations:
    """The declarations of calls by all their dependences: the layers of a model repeat.

    Specs and arrays are told apart by identity: callers hold on to them, and have one object for
    all equal specs.
    """

    def __init__(self, *, priced: bool = True) -> None:
        self.priced = priced
        self._known: dict[Hashable, Declaration] = {}

    def of(self, call: Call) -> Declaration:
        """The declaration of a call, cached for like ones."""
        attributes = tuple(call.attributes.items())
        sizes = (call.operands, call.wanted, call.results)
        key = (
            id(call.kernel),
            call.version,
            call.dynamic,
            attributes,
            *(tuple(map(id, s)) for s in sizes),
        )
        try:
            found = self._known.get(key)
        except TypeError:  # an attribute is an array or has a list in it: compared by nothing
            return call.declared(priced=self.priced)
        if found is None:
            found = self._known[key] = call.declared(priced=self.priced)
        return found

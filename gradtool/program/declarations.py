"""Declarations of kernels and the cost model for steps, computed once for like ones."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradtool.graph.families import full_name
from gradtool.graph.specs import Spec
from gradtool.ops import costs
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

    def declared(self) -> Declaration:
        """The declaration by the kernel and the cost model."""
        found, name = self.kernel, full_name(self.kernel.domain, self.kernel.op)
        moved = costs.moved(self.operands, self.wanted, op=name, attributes=self.attributes)
        if self.dynamic:
            return Declaration((), 0, None, moved)
        operator = found.domain, found.op, self.version
        return Declaration(
            workspace=found.workspace(self.operands, self.wanted, self.attributes),
            scratch_bytes=found.scratch_bytes(self.operands, self.results, self.attributes),
            flops=costs.flops(*operator, self.operands, self.wanted, self.attributes),
            moved=moved,
        )


class Declarations:
    """The declarations of calls by all their dependences: the layers of a model repeat.

    Specs and arrays are told apart by identity: callers hold on to them, and have one object for
    all equal specs.
    """

    def __init__(self) -> None:
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
            return call.declared()
        if found is None:
            found = self._known[key] = call.declared()
        return found

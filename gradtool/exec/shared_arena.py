"""One arena for the plans of a model: its parameters and its state are in it once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradtool.errors import DeviceError
from gradtool.exec.device import Device
from gradtool.exec.executor import Executor
from gradtool.exec.parameters import Parameters
from gradtool.graph.specs import Spec, contiguous
from gradtool.planning.plan import Plan
from gradtool.planning.shared_layout import (
    SHARED,
    Layout,
    Parts,
    extended,
    laid_over,
    size,
)


@dataclass(eq=False)
class Tenant:
    """A plan that runs in a shared arena; bound while its executor is there.

    Of its parameters and its state, `shared` are the ones called the same by other tenants, and
    `parts` lie inside of values brought by others before.
    """

    plan: Plan
    parameters: Parameters
    shared: Collection[str] = ()
    parts: Parts = field(default_factory=dict)
    executor: Executor | None = None

    def release(self) -> None:
        """Let go of the arena."""
        self.executor = None


class Store:
    """An arena that grows to the largest of the plans bound in it.

    The parameters and the state that plans share lie at its start, whatever plan runs; everything
    else of a plan is overwritten when another one runs.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.layout: Layout = {}
        self.arena: Any = None
        self._specs: dict[str, Spec] = {}
        self._bound: list[Tenant] = []
        self._expected: list[Tenant] = []
        self._filled: frozenset[str] = frozenset()
        self.last: Tenant | None = None

    def expect(self, tenant: Tenant) -> None:
        """Make room for a tenant when another one is bound: the arena then stays where it is."""
        self._expected.append(tenant)

    def enter(self, tenant: Tenant) -> Executor:
        """The executor of a tenant, ready to be fed."""
        if tenant.executor is None:
            self._bind(tenant)
        elif self.last is not tenant:
            tenant.executor.load(self._held(tenant))
        self.last = tenant
        assert tenant.executor is not None  # noqa: S101 - bound just now
        return tenant.executor

    def leave(self, tenant: Tenant) -> None:
        """Let go of a tenant; its place stays for others."""
        tenant.executor = None
        self._bound = [each for each in self._bound if each is not tenant]

    def value(self, name: str) -> Any:
        """The parameter or state of a name, where it lies; None if no plan has read it yet."""
        if name not in self._filled:
            return None
        spec, offset = self._specs[name], self.layout[name].offset
        return self.device.view(self.arena, offset, spec.shape, spec.dtype, contiguous(spec))

    def span(self, names: Sequence[str]) -> Any:
        """State of one type, adjacent in the arena, as one flat array without a copy.

        There may be a few bytes between the values.
        """
        first, last = self.layout[names[0]], self.layout[names[-1]]
        dtype, width = self._specs[names[0]].dtype, last.offset + last.bytes - first.offset
        count = width // dtype.itemsize
        return self.device.view(self.arena, first.offset, (count,), dtype, (dtype.itemsize,))

    def clear(self) -> None:
        """Let go of everything."""
        for tenant in self._bound:
            tenant.executor = None
        self.layout, self.arena, self._bound, self.last = {}, None, [], None
        self._expected, self._filled = [], frozenset()

    def _bind(self, tenant: Tenant) -> None:
        layout = extended(self.layout, tenant.plan, _own(tenant))
        coming, later = [tenant], []
        for each in self._expected:
            if each is tenant:
                continue
            if any(whole not in layout for whole, _ in each.parts.values()):
                later.append(each)
                continue
            layout = extended(layout, each.plan, _own(each))
            coming.append(each)
        self._expected = later
        plans = [laid_over(each.plan, layout, _own(each), each.parts) for each in coming]
        plan, peak = plans[0], max(each.peak for each in plans)
        grown = len(layout) > len(self.layout)
        if self.arena is None or peak > self.arena.size or grown:
            self._move(peak)
        executor = Executor(
            plan, self.device, tenant.parameters, arena=self.arena, held=self._held(tenant)
        )
        values = plan.program.values
        new = _own(tenant).intersection(b.name for b in tenant.plan.buffers if b.region in SHARED)
        self._specs |= {v.name: v.spec for v in values if v.name in new and v.spec is not None}
        self._filled |= new
        tenant.executor, self.layout = executor, layout
        self._bound.append(tenant)

    def _held(self, tenant: Tenant) -> frozenset[str]:
        """Names of a tenant's values already in the arena."""
        return frozenset(tenant.shared).intersection(self._filled).union(tenant.parts)

    def _move(self, peak: int) -> None:
        """Grow the arena and copy its shared start; bound tenants are bound anew."""
        for tenant in self._bound:
            tenant.release()
        self._bound, self.last = [], None
        if self.arena is None:
            self.arena = self.device.empty(peak)
            return
        before, held = self.arena.size, size(self.layout)
        if peak <= before:
            return
        kept = self.arena[:held].copy()
        self.arena = None  # before there is another one
        try:
            self.arena = self.device.empty(peak)
        except DeviceError:
            self.arena = self.device.empty(before)
            raise
        finally:
            self.arena[:held] = kept


def _own(tenant: Tenant) -> frozenset[str]:
    """Names shared by a tenant, its parts of other values aside."""
    return frozenset(tenant.shared).difference(tenant.parts)

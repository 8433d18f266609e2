"""One arena for the plans of a model: its parameters and its state are in it once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from gradtool.errors import DeviceError
from gradtool.exec.array_interop import as_numpy
from gradtool.exec.device import Device
from gradtool.exec.executor import Executor
from gradtool.exec.mapped_files import Files, InPlace
from gradtool.exec.parameters import Parameters, in_place
from gradtool.graph.specs import Spec, contiguous
from gradtool.planning.plan import Plan
from gradtool.planning.shared_layout import SHARED, Layout, Parts, extended, laid_over, size

Keys = Mapping[str, str]  # by name, the name in the arena where that differs
NO_KEYS: Keys = MappingProxyType({})


@dataclass(eq=False)
class Tenant:
    """A plan that runs in a shared arena; bound while its executor is there.

    Of its parameters and its state, `shared` are the ones called the same by other tenants, but
    for the `keys` of some, and `parts` lie inside of values brought by others before.
    """

    plan: Plan
    parameters: Parameters
    shared: Collection[str] = ()
    parts: Parts = field(default_factory=dict)
    executor: Executor | None = None
    keys: Keys = field(default_factory=dict)

    def release(self) -> None:
        """Let go of the arena."""
        self.executor = None


@dataclass(eq=False)
class _Arena:
    """The memory of some stores, what lies in it by key, and all keys that they may ask for.

    What is `given` waits for its place.  What is read `in_place`, of `files`, lies elsewhere; what
    is `fixed` never does, as somebody writes over it.
    """

    layout: Layout = field(default_factory=dict)
    memory: Any = None
    specs: dict[str, Spec] = field(default_factory=dict)
    bound: list[Tenant] = field(default_factory=list)
    expected: list[Tenant] = field(default_factory=list)
    filled: frozenset[str] = frozenset()
    given: dict[str, Callable[[], Any]] = field(default_factory=dict)
    files: Files = field(default_factory=Files)
    in_place: dict[str, InPlace] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    last: Tenant | None = None
    stores: int = 0


class Store:
    """An arena that grows to the largest of the plans bound in it.

    The parameters and the state that plans share lie at its start, whatever plan runs; everything
    else of a plan is overwritten when another one runs.  Several stores may have one arena: what
    only one of them has by a name that another has as well has a key of its own.
    """

    def __init__(self, device: Device, names: Iterable[str] = ()) -> None:
        """An arena of its own for parameters and state of these names."""
        self.device = device
        self.keys: Keys = NO_KEYS
        self._arena = _Arena(stores=1, names=set(names))

    def beside(self, names: Iterable[str], first: Mapping[str, Parameters]) -> Store:
        """A store of the same arena, for parameters and state of these names.

        Those of `first` are the same in both; until a plan brings them they are what this has.
        """
        made = Store(self.device)
        made._arena = arena = self._arena
        made.keys = keys = {name: self.key(name) for name in first if self.key(name) != name}
        for name in names:
            number, key = 2, name
            while name not in first and key in arena.names:
                number, key = number + 1, f"{name} ({number})"
            if key != name:
                keys[name] = key
        for name, data in first.items():
            if self.key(name) not in arena.filled:
                arena.given.setdefault(self.key(name), partial(data, name))
        arena.names.update(map(made.key, names))
        arena.stores += 1
        return made

    @property
    def layout(self) -> Layout:
        """What is shared, by key."""
        return self._arena.layout

    @property
    def arena(self) -> Any:
        """The memory; None before a plan is bound."""
        return self._arena.memory

    @property
    def files(self) -> Files:
        """The files that are mapped for its tenants."""
        return self._arena.files

    @property
    def last(self) -> Tenant | None:
        """The tenant entered last."""
        return self._arena.last

    def key(self, name: str) -> str:
        """The key of a parameter or state."""
        return self.keys.get(name, name)

    def expect(self, tenant: Tenant) -> None:
        """Make room for a tenant when another one is bound: the arena then stays where it is."""
        self._arena.expected.append(tenant)

    def fix(self, names: Iterable[str]) -> bool:
        """Have parameters in the arena, for others to write over; whether some lay elsewhere.

        Plans that read them there have to be made anew.
        """
        arena, keys = self._arena, [self.key(name) for name in names]
        arena.fixed.update(keys)
        moved = [key for key in keys if key in arena.in_place]
        for key in moved:
            spec, data = arena.specs[key], arena.in_place.pop(key).data
            arena.given[key] = partial(_laid, data, spec)
        return bool(moved)

    def is_fixed(self, name: str) -> bool:
        """Whether a parameter has to lie in the arena."""
        return self.key(name) in self._arena.fixed

    def enter(self, tenant: Tenant) -> Executor:
        """The executor of a tenant, ready to be fed."""
        if tenant.executor is None:
            self._bind(tenant)
        elif self.last is not tenant:
            tenant.executor.load(self._held(tenant))
        self._arena.last = tenant
        assert tenant.executor is not None  # noqa: S101 - bound just now
        return tenant.executor

    def leave(self, tenant: Tenant) -> None:
        """Let go of a tenant; its place stays for others."""
        tenant.executor = None
        arena = self._arena
        arena.bound = [each for each in arena.bound if each is not tenant]
        arena.expected = [each for each in arena.expected if each is not tenant]

    def holds(self, name: str) -> bool:
        """Whether a parameter or state has its place."""
        return self.key(name) in self._arena.layout

    def value(self, name: str) -> Any:
        """The parameter or state of a name, where it lies or waits; None if no plan has read it."""
        arena, key = self._arena, self.key(name)
        if key in arena.in_place:
            return _laid(arena.in_place[key].data, arena.specs[key])
        if key not in arena.filled:
            given = arena.given.get(key)
            return None if given is None else given()
        spec, offset = arena.specs[key], arena.layout[key].offset
        return self.device.view(arena.memory, offset, spec.shape, spec.dtype, contiguous(spec))

    def set(self, name: str, array: Any) -> None:
        """Write over a parameter or state of the same shape; before a plan reads it, it waits.

        What is mapped of a file gets memory of its own, where its readers then find it.
        """
        arena, key = self._arena, self.key(name)
        if key in arena.in_place and arena.in_place[key].file is not None:
            arena.in_place[key] = InPlace.own(as_numpy(array))
            self._release(lambda tenant: key in _in_place(tenant))
        elif key in arena.filled or key in arena.in_place:
            self.device.from_host(self.value(name), array)
        else:
            held = np.array(as_numpy(array))
            arena.given[key] = lambda: held

    def span(self, names: Sequence[str]) -> Any:
        """State of one type, adjacent in the arena, by key: one flat array without a copy.

        There may be a few bytes between the values.
        """
        arena = self._arena
        first, last = (arena.layout[each] for each in (names[0], names[-1]))
        dtype, width = arena.specs[first.name].dtype, last.offset + last.bytes - first.offset
        count = width // dtype.itemsize
        return self.device.view(arena.memory, first.offset, (count,), dtype, (dtype.itemsize,))

    def close(self) -> None:
        """Let go of everything, once no other store has the same arena."""
        arena = self._arena
        arena.stores -= 1
        if not arena.stores:
            for tenant in arena.bound:
                tenant.executor = None
            arena.layout, arena.memory, arena.bound, arena.last = {}, None, [], None
            arena.expected, arena.filled, arena.given = [], frozenset(), {}
            arena.files, arena.in_place = Files(), {}

    def _bind(self, tenant: Tenant) -> None:
        arena, layout = self._arena, self.layout
        layout = extended(layout, _keyed(tenant), _own(tenant))
        coming, later = [tenant], []
        for each in arena.expected:
            if each is tenant:
                continue
            if any(whole not in layout for whole, _ in _parts(each).values()):
                later.append(each)
                continue
            layout = extended(layout, _keyed(each), _own(each))
            coming.append(each)
        arena.expected = later
        plans = [laid_over(_keyed(each), layout, _own(each), _parts(each)) for each in coming]
        specs = ((tenant.keys.get(v.name, v.name), v.spec) for v in tenant.plan.program.values)
        known = _own(tenant)
        arena.specs |= {key: spec for key, spec in specs if key in known and spec is not None}
        plan, peak = plans[0], max(each.peak for each in plans)
        grown = len(layout) > len(arena.layout)
        if arena.memory is None or peak > arena.memory.size or grown:
            self._move(peak)
        executor = Executor(
            plan, self.device, _First(arena, tenant), arena=arena.memory, held=self._held(tenant)
        )
        own = _keyed(tenant).buffers
        new = _own(tenant).intersection(b.name for b in own if b.region in SHARED)
        arena.filled |= new
        arena.given = {key: a for key, a in arena.given.items() if key not in arena.filled}
        tenant.executor, arena.layout = executor, layout
        arena.bound.append(tenant)

    def _held(self, tenant: Tenant) -> frozenset[str]:
        """Names of a tenant's values already in the arena."""
        own = (n for n in tenant.shared if tenant.keys.get(n, n) in self._arena.filled)
        return frozenset(own).union(tenant.parts)

    def _release(self, asked: Callable[[Tenant], bool]) -> None:
        """Have tenants bound anew when they are entered."""
        arena = self._arena
        for tenant in filter(asked, arena.bound):
            tenant.release()
        arena.bound = [tenant for tenant in arena.bound if not asked(tenant)]
        arena.last = None

    def _move(self, peak: int) -> None:
        """Grow the arena and copy its shared start; bound tenants are bound anew."""
        arena = self._arena
        self._release(lambda _: True)
        if arena.memory is None:
            arena.memory = self.device.empty(peak)
            return
        before, held = arena.memory.size, size(arena.layout)
        if peak <= before:
            return
        kept = arena.memory[:held].copy()
        arena.memory = None  # before there is another one
        try:
            arena.memory = self.device.empty(peak)
        except DeviceError:
            arena.memory = self.device.empty(before)
            raise
        finally:
            arena.memory[:held] = kept


class _First:
    """The data that a tenant begins with: what waits for its place, else the model's."""

    def __init__(self, arena: _Arena, tenant: Tenant) -> None:
        self._arena, self._tenant = arena, tenant

    def __call__(self, name: str) -> np.ndarray[Any, Any]:
        """An array to be copied."""
        found = self._arena.given.get(self._tenant.keys.get(name, name))
        return self._tenant.parameters(name) if found is None else found()

    def in_place(self, name: str) -> InPlace:
        """The bytes of what is not copied, the same for all tenants where it is shared."""
        arena, key = self._arena, self._tenant.keys.get(name, name)
        if key not in _in_place(self._tenant):
            return in_place(self._tenant.parameters, name)
        if key not in arena.in_place:
            waits = arena.given.pop(key, None)
            arena.in_place[key] = (
                in_place(self._tenant.parameters, name) if waits is None
                else InPlace.own(as_numpy(waits()))
            )  # fmt: skip
        return arena.in_place[key]


def _in_place(tenant: Tenant) -> frozenset[str]:
    """Keys of the parameters that a tenant shares and reads where they lie in a file."""
    program, own = tenant.plan.program, _own(tenant)
    keys = (tenant.keys.get(v.name, v.name) for v in program.values if v.mapped
            and v.kind == "parameter")  # fmt: skip
    return own.intersection(keys)


def _laid(data: np.ndarray[Any, Any], spec: Spec) -> np.ndarray[Any, Any]:
    """Bytes as the array of a spec."""
    return np.ndarray(spec.shape, spec.dtype, buffer=data)


def _own(tenant: Tenant) -> frozenset[str]:
    """Keys of what a tenant shares, its parts of other values aside."""
    return frozenset(
        tenant.keys.get(n, n) for n in frozenset(tenant.shared).difference(tenant.parts)
    )


def _parts(tenant: Tenant) -> Parts:
    """The parts of a tenant, by the keys of their wholes."""
    return {n: (tenant.keys.get(of, of), start) for n, (of, start) in tenant.parts.items()}


def _keyed(tenant: Tenant) -> Plan:
    """The plan of a tenant, whose buffers have keys for names."""
    if not tenant.keys:
        return tenant.plan
    buffers = (replace(b, name=tenant.keys.get(b.name, b.name)) for b in tenant.plan.buffers)
    return replace(tenant.plan, buffers=tuple(buffers))

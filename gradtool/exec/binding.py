"""A model bound for the sizes of its inputs: planned once for each, cached within a memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.exec.executor import Executor
from gradtool.exec.parameters import Parameters, parameters_of
from gradtool.exec.results import Outlets
from gradtool.exec.shared_arena import Store, Tenant
from gradtool.planning.plan import Plan
from gradtool.planning.shared_layout import NO_PARTS, Parts

Given = Mapping[str, Any]
NUMBERS = (int, float)
PLAN_MEMORY = 512 << 20  # bytes
_ENTRY = 2560  # bytes of Python that a value or a step of a bound plan takes, its buffer and call


@dataclass(slots=True)
class Inlet:
    """The place of an input, its shape and type, and its default.

    `shape` is None where it may be any, `dtype` where the input is no tensor; `target` is None
    where the executor has to be asked.  `is_default` says that the default is there now: a step
    writes over no input.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: np.dtype[Any] | None
    default: Any
    target: Any = None
    is_default: bool = False

    def fits(self, given: Any) -> bool:
        """Whether something given may be copied here as it is."""
        if type(given) is np.ndarray and given.dtype is self.dtype:
            return self.shape is None or given.shape == self.shape
        if type(given) in NUMBERS:
            return self.shape == () and self.dtype is not None and self.dtype.kind == "f"
        if self.dtype is None:
            return True
        dtype = getattr(given, "dtype", None)
        return (
            isinstance(dtype, np.dtype)
            and dtype == self.dtype
            and (self.shape is None or given.shape == self.shape)
        )


class Binding(Tenant):
    """A plan for one set of sizes, and the places of its inputs and results."""

    def __init__(
        self,
        plan: Plan,
        parameters: Parameters,
        store: Store,
        inlets: Iterable[Inlet],
        shared: Collection[str] = (),
        parts: Parts = NO_PARTS,
    ) -> None:
        super().__init__(plan, parameters, shared, parts, keys=store.keys)
        self.inlets = list(inlets)
        self._store = store
        self._outlets: Outlets | None = None

    @property
    def outlets(self) -> Outlets:
        """The places of its results, once it has been fed."""
        if self._outlets is None:
            self._outlets = Outlets(self.enter())
        return self._outlets

    def release(self) -> None:
        """Let go of the arena, and of the places of inputs and results in it."""
        super().release()
        self._outlets = None
        for inlet in self.inlets:
            inlet.target = None

    def fits(self, given: Given) -> bool:
        """Whether all given inputs have their places here, and no other is needed."""
        found = 0
        for inlet in self.inlets:
            array = given.get(inlet.name, inlet)
            if array is inlet:
                if inlet.default is None:
                    return False
                continue
            if not inlet.fits(array):
                return False
            found += 1
        return found == len(given)

    def enter(self) -> Executor:
        """The executor, ready to be fed; whatever ran before in its arena."""
        before = self.executor
        if before is not None and self._store.last is self:
            return before
        executor = self._store.enter(self)
        for inlet in self.inlets:
            inlet.is_default = False
            if executor is not before:
                inlet.target = executor.place(inlet.name)
        if executor is not before:
            self._outlets = None
        return executor

    def inputs(self) -> dict[str, Any]:
        """The arrays of its inputs, by name."""
        executor = self.enter()
        return {executor.program.values[v].name: executor.value(v) for v in executor.program.inputs}

    def feed(self, given: Given) -> Executor:
        """Copy fitting inputs to their places; the executor is ready to step then."""
        executor = self.enter()
        for inlet in self.inlets:
            array = given.get(inlet.name, inlet)
            if array is inlet:
                if inlet.is_default:
                    continue
                array = inlet.default
            inlet.is_default = array is inlet.default and inlet.target is not None
            if inlet.target is not None and type(array) is np.ndarray:
                np.copyto(inlet.target, array)
            elif inlet.target is not None and type(array) in NUMBERS:
                inlet.target.fill(array)
            else:
                executor.set_input(inlet.name, _as_array(array, inlet))
        return executor


class Bindings:
    """The bindings of a model used last, with values `shared` with others in a store.

    Their `parts` lie inside of what is shared.  So many are kept as take at most `most` bytes on
    the host (`held_bytes`), one at least.
    """

    def __init__(
        self, store: Store, most: int = 0, shared: Collection[str] = (), parts: Parts = NO_PARTS
    ) -> None:
        self._store = store
        self._shared, self._parts = frozenset(shared), parts
        self._most, self._held = most, 0
        self._latest: OrderedDict[int, Binding] = OrderedDict()  # by identity, the last one last
        self._known: dict[Hashable, Binding] = {}  # by the shapes that it was found for

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans in the cache, the one used last first."""
        return tuple(binding.plan for binding in reversed(self._latest.values()))

    def find(self, given: Given) -> Binding | None:
        """The binding that fits the given inputs, if there is one."""
        shapes = tuple([getattr(array, "shape", None) for array in given.values()])
        found = self._known.get(shapes)
        if found is None or not found.fits(given):
            latest = reversed(self._latest.values())
            found = next((binding for binding in latest if binding.fits(given)), None)
            if found is None:
                return None
            self._known[shapes] = found
        self._latest.move_to_end(id(found))
        return found

    def add(self, plan: Plan, model: ir.Model, defaults: Given | None = None) -> Binding:
        """Bind the plan of a model whose sizes are known."""
        self._held += held_bytes(plan)
        while self._latest and self._held > self._most:
            _, oldest = self._latest.popitem(last=False)
            self._store.leave(oldest)
            self._held -= held_bytes(oldest.plan)
            self._known = {k: each for k, each in self._known.items() if each is not oldest}
        places = inlets(plan, model, defaults or {})
        binding = Binding(
            plan, parameters_of(model, self._store.files), self._store, places, self._shared,
            self._parts,
        )  # fmt: skip
        self._latest[id(binding)] = binding
        return binding

    def clear(self) -> None:
        """Let go of all."""
        for binding in self._latest.values():
            self._store.leave(binding)
        self._latest.clear()
        self._known.clear()
        self._held = 0


def held_bytes(plan: Plan) -> int:
    """The bytes on the host that a bound plan is reckoned to take beside the arena.

    It is the constants of the program, and what Python takes for its values, buffers and calls.
    """
    program = plan.program
    constants = sum(array.nbytes for array in program.constants.values())
    return constants + _ENTRY * (len(program.values) + len(program.steps))


def inlets(plan: Plan, model: ir.Model, defaults: Given) -> list[Inlet]:
    """Inlets of a plan of a model."""
    values = {v.name: v for v in model.graph.inputs[:]}
    found = []
    for number in plan.program.inputs:
        name = plan.program.values[number].name
        value = values[name]
        spec = plan.program.values[number].spec
        is_tensor = isinstance(value.type, ir.TensorType) and value.dtype is not None
        known = value.shape is not None and value.shape.is_static()
        found.append(
            Inlet(
                name,
                spec.shape
                if spec is not None
                else tuple(value.shape.numpy())
                if known and value.shape is not None
                else None,
                np.dtype(value.dtype.numpy()) if is_tensor and value.dtype is not None else None,
                defaults.get(name),
            )
        )
    return found


def _as_array(given: Any, inlet: Inlet) -> Any:
    return np.asarray(given, inlet.dtype) if type(given) in NUMBERS else given

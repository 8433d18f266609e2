"""A model that stays in an arena: planned for the sizes of its inputs, whatever they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.exec import feeds
from gradtool.exec.binding import PLAN_MEMORY, Binding, Bindings
from gradtool.exec.shared_arena import Store
from gradtool.operators.kernel_sets import Kernels
from gradtool.planning.no_recompute import no_recompute, resized
from gradtool.planning.plan import Plan
from gradtool.planning.shared_layout import NO_PARTS, Parts
from gradtool.program import unpriced
from gradtool.program.bind_dims import bound
from gradtool.program.flatten import flatten, flattened
from gradtool.program.native import made_for
from gradtool.program.resize import Resizing

SOURCE = "batch"
_FORMS = 4  # programs that others follow from
Batch = Mapping[str, Any]


class Resident:
    """A model over a store of parameters, whose plans are called `name`.

    Those used last are kept, within `most` bytes.  `shared` are the parameters and the state that
    it has in common with others in the store, and its `parts` lie inside of such.
    """

    def __init__(
        self,
        model: ir.Model,
        store: Store,
        name: str,
        kernels: Kernels = "numpy",
        *,
        shared: Collection[str],
        most: int = PLAN_MEMORY,
        parts: Parts = NO_PARTS,
    ) -> None:
        self.model = model
        self._store = store
        self._name = name
        self._kernels = kernels
        self._bindings = Bindings(store, most, shared, parts)
        self._takes = feeds.takers(model)
        self._forms: list[tuple[Resizing, Plan]] = []  # the one used last is last

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans in the cache, the one used last first."""
        return self._bindings.plans

    def needs(self) -> list[str]:
        """The required inputs."""
        known = {*feeds.defaults(self.model), *feeds.buffers(self.model)}
        return [v.name or "" for v in feeds.inputs_of(self.model) if v.name not in known]

    def plan_ahead(self, *, bind: bool = True) -> None:
        """Plan a model whose sizes are known, and bind it; or leave that to when it runs."""
        binding = self._add(self.model, {})
        if bind:
            binding.enter()
        else:
            self._store.expect(binding)

    def feed(self, batch: Batch, also: Iterable[str] = ()) -> Binding:
        """The binding that a batch fits, fed with it; planned first if there is none.

        Names among `also` are known and left out.

        Raises:
            MissingData: an input is absent.
            UsageError: nothing has a name that is given, or an array has another type or shape.
        """
        binding = self._bindings.find(batch)
        if binding is not None:
            binding.feed(batch)
            return binding
        arrays = feeds.converted(self.model, batch, SOURCE, also)
        names = [name for name in arrays if self._takes[name].is_initializer()]
        held = {name: arrays.pop(name) for name in names}
        binding = self._bindings.find(arrays) or self._planned(arrays)
        binding.enter()
        for name, array in held.items():
            self._set(name, array)
        binding.feed(arrays)
        return binding

    def clear(self) -> None:
        """Let go of all plans."""
        self._bindings.clear()
        self._forms.clear()

    def _planned(self, arrays: dict[str, Any]) -> Binding:
        """A new binding for the sizes of some inputs."""
        model, whole = feeds.fed(self.model, arrays, SOURCE)
        return self._add(model, feeds.sizes(model, whole))

    def _add(self, model: ir.Model, sizes: Mapping[str, int]) -> Binding:
        sized, plan = self._plan(model, sizes)
        defaults = feeds.defaults(sized)
        zero = feeds.buffers(sized)
        for value in sized.graph.inputs[:] if zero else ():
            if value.name in zero and value.shape is not None and value.dtype is not None:
                nothing = np.zeros((), value.dtype.numpy())
                defaults[value.name or ""] = np.broadcast_to(nothing, value.shape.numpy())
        return self._bindings.add(plan, sized, defaults)

    def _plan(self, model: ir.Model, sizes: Mapping[str, int]) -> tuple[ir.Model, Plan]:
        """A model with sizes given to its symbols, and its plan: of one nearby, if it may be."""
        if model is not self.model or not sizes:
            sized = bound(model, sizes) if sizes else model
            program = flatten(
                sized, dims=sizes, kernels=self._kernels, priced=False, held=self._fixed(sized)
            )
            return sized, no_recompute(unpriced(program), self._name)
        for form in reversed(self._forms):
            found = form[0].at(sizes)
            if found is not None:
                self._forms.remove(form)
                self._forms.append(form)
                plan = resized(form[1], found.program) if found.is_alike else no_recompute(
                    found.program, self._name
                )  # fmt: skip
                return form[0].model, plan
        sized = bound(model, sizes)
        flat, program = flattened(
            sized, sizes, kernels=self._kernels, priced=False, held=self._fixed(sized)
        )
        made = Resizing.of(model, flat, program, sizes, self._kernels)
        if made is None:
            return sized, no_recompute(unpriced(made_for(self._kernels, program)), self._name)
        plan = no_recompute(made.program, self._name)
        self._forms = [*self._forms[1 - _FORMS :], (made, plan)]
        return sized, plan

    def _fixed(self, model: ir.Model) -> frozenset[str]:
        """The initializers that others write over, in the same arena."""
        return frozenset(filter(self._store.is_fixed, model.graph.initializers))

    def _set(self, name: str, array: Any) -> None:
        """Write over a parameter, or over state."""
        target = self._store.value(name)
        if target is None:
            raise UsageError(
                f"{SOURCE}: {name!r} is a constant of this session; Session.set takes another"
            )
        if target.shape != array.shape:
            raise UsageError(
                f"{SOURCE}: {name!r} has shape {list(array.shape)}, the model takes "
                f"{list(target.shape)}"
            )
        self._store.set(name, array)

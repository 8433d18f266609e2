"""Other numbers in the tensors of a session: of frozen parameters, of constants, of state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.exec import feeds
from gradtool.exec.array_interop import as_numpy
from gradtool.exec.bound_model import Resident
from gradtool.graph.predicates import is_float
from gradtool.session.held import StateAccess
from gradtool.session.sharing import is_constant
from gradtool.text.words import some, suggest


class Setting(StateAccess):
    """Writes over what steps read, whether or not they train it."""

    _train: Resident
    _evaluated: dict[bool, Resident]
    _forward: ir.Model | None
    _resident: Callable[[ir.Model], Resident]

    def set(self, values: Mapping[str, Any], *, rate: float = 1.0) -> None:
        """Write over tensors by name: frozen parameters, as of teachers, statistics, state.

        What is frozen has no gradient and no optimizer state, before and after.  All values are
        checked before any is written.

        Args:
            values: arrays of the types and shapes of the tensors, or numbers and lists; the
                `values` of another session, for one.
            rate: the part of the way that floats go to these values.  Below 1 they follow others
                slowly, as target networks do: `t + rate * (value - t)`.

        Raises:
            UsageError: no tensor has a name, one has another type or shape, or the graph was made
                for the value that it has; the rate is not in (0, 1]; or the session is closed.

        Example:
            target.set(online.values("q.*"), rate=0.005)
        """
        self._require_open()
        if not 0 < rate <= 1:
            raise UsageError(f"a rate is above 0 and at most 1, not {rate}")
        held = {n: v for model in self._models for n, v in model.graph.initializers.items()}
        arrays = {name: _fitting(name, given, held) for name, given in values.items()}
        if rate != 1:
            arrays = {name: self._toward(name, array, rate) for name, array in arrays.items()}
        constants = {n: a for n, a in arrays.items() if is_constant(self._home(n), n)}
        self._replace(constants)
        for name, array in arrays.items():
            if name not in constants or self._store.holds(name):
                self._store.set(name, array)
        self._given |= dict.fromkeys(arrays)

    def _plan_anew(self) -> None:
        """Forget the plans of steps and evaluations: what they read lies elsewhere now."""
        for resident in (self._train, *self._evaluated.values()):
            resident.clear()

    def _toward(self, name: str, array: Any, rate: float) -> np.ndarray[Any, Any]:
        """A tensor moved a part of the way to an array."""
        before = self._value(name, copy=False)
        if not is_float(self._home(name).graph.initializers[name]):
            raise UsageError(f"set: {name!r} is {before.dtype}: only floats go a part of the way")
        moved = before + before.dtype.type(rate) * (as_numpy(array) - before)
        return np.asarray(moved, before.dtype)

    def _replace(self, constants: Mapping[str, Any]) -> None:
        """Have other constants; what was planned with the former ones is planned anew.

        Raises:
            UsageError: the gradient was built upon a value.
        """
        if not constants:
            return

        def having(model: ir.Model) -> ir.Model:
            own = {n: as_numpy(a) for n, a in constants.items() if n in model.graph.initializers}
            return feeds.with_values(model, own)

        train, models = having(self._train.model), (having(self._models[0]), *self._models[1:])
        self._forward = None if self._forward is None else having(self._forward)
        self._models = models
        self._train.clear()
        self._train = self._resident(train)
        for resident in self._evaluated.values():
            resident.clear()
        self._evaluated.clear()


def _fitting(name: str, given: Any, held: Mapping[str, ir.Value]) -> Any:
    """A given array in the type of a tensor."""
    if name not in held:
        near = suggest(name, held) or f"; there are {some(held) or 'none'}"
        raise UsageError(f"set: no parameter, state or constant {name!r}{near}")
    value = held[name]
    array = feeds.in_type_of(value, given, "set")
    if value.shape is not None and list(array.shape) != list(value.shape):
        raise UsageError(
            f"set: {name!r} has shape {list(array.shape)}, the model takes {list(value.shape)}"
        )
    return array

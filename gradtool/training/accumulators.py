"""States of metrics over the batches of an evaluation: of any batches it makes the same number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np

from gradtool.errors import UsageError, UserCodeError
from gradtool.exec import available_memory
from gradtool.plugins import is_number, place_of, user_code

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
State = Mapping[str, Array]  # of one batch


class Accumulator(Protocol):
    """Takes the states of batches one after the other."""

    def add(self, state: State) -> None:
        """Take the state of the next batch."""

    def value(self) -> Any:
        """The metric of all batches; None where no example counts."""


class Sums:
    """Adds up states, of whose sums `finish` makes the metric."""

    def __init__(self, finish: Callable[[State], Any]) -> None:
        self._finish = finish
        self._sums: dict[str, Array] = {}

    def add(self, state: State) -> None:
        """Add a state to the sums."""
        for name, array in state.items():
            self._sums[name] = array + self._sums[name] if name in self._sums else array

    def value(self) -> Any:
        """The metric of the sums."""
        return self._finish(self._sums) if self._sums else None


class Moments:
    """Merges means and sums of squares about them, by column.

    Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
    sample variances" (1979), which cancels no digits.
    """

    def __init__(self, finish: Callable[[State], Any]) -> None:
        self._finish = finish
        self._found: dict[str, Array] = {}

    def add(self, state: State) -> None:
        """Merge a state: `n`, `mean [D]`, `squares [D]` about it, and other sums."""
        if not self._found or not state["n"]:
            self._found = self._found or dict(state)
            return
        before, n, more = self._found, self._found["n"], state["n"]
        apart = state["mean"] - before["mean"]
        total = n + more
        made = {name: before[name] + array for name, array in state.items()}
        made["mean"] = before["mean"] + apart * (more / total)
        made["squares"] += apart * apart * (n * more / total)
        self._found = made

    def value(self) -> Any:
        """The metric of the merged moments."""
        return self._finish(self._found) if self._found and self._found["n"] else None


class Kept:
    """Keeps all states; `needs` is the reason for so much memory."""

    def __init__(self, needs: str) -> None:
        self._needs, self._bytes = needs, 0
        self._states: list[State] = []

    def add(self, state: State) -> None:
        """Keep a state. Raises DeviceError if memory has no room for a joined copy of all."""
        self._bytes += sum(array.nbytes for array in state.values())
        available_memory.require(self._bytes, self._needs)
        self._states.append(state)


class Whole(Kept):
    """Makes the metric of all states, whose arrays are joined along their first axis."""

    def __init__(self, what: str, finish: Callable[[State], Any]) -> None:
        super().__init__(f"what {what} needs of all examples,")
        self._finish = finish

    def value(self) -> Any:
        """The metric of all examples together."""
        if not self._states:
            return None
        joined = {
            name: np.concatenate([state[name] for state in self._states])
            for name in self._states[0]
        }
        return self._finish(joined)


# ------------------------------------------------------------------------- metrics of the user's

_OUTPUTS, _BATCH, _COUNT = "outputs/", "batch/", "count"


def of_user(outputs: Arrays, batch: Arrays, count: int) -> State:
    """The state that a metric of the user's keeps: copies of all arrays of a batch."""
    return {
        **{f"{_OUTPUTS}{name}": np.array(array) for name, array in outputs.items()},
        **{f"{_BATCH}{name}": np.array(array) for name, array in batch.items()},
        _COUNT: np.asarray(count),
    }


class UserFunction(Kept):
    """Calls `function(outputs, batch)` once, with the arrays of all examples."""

    def __init__(self, what: str, function: Callable[[Arrays, Arrays], Any]) -> None:
        super().__init__(f"the outputs of all examples for {what} (or name a class, see the docs),")
        self._what, self._function = what, function

    def value(self) -> float:
        """The number that the function returns."""
        arrays = {name: self._joined(name) for name in self._states[0] if name != _COUNT}
        with user_code(self._what, self._function):
            found = self._function(*_split(arrays))
        return _number(self._what, found, self._function)

    def _joined(self, name: str) -> Array:
        """One array of all examples, along the axis that has as many as each batch."""
        counts = [int(state[_COUNT]) for state in self._states]
        each = [state[name] for state in self._states]
        axes = (a for a in range(each[0].ndim) if [e.shape[a] for e in each] == counts)
        axis = next(axes, None)
        if axis is None:
            return each[-1]
        try:
            return np.concatenate(each, axis)
        except ValueError as error:
            raise UsageError(
                f"{self._what}: {name} has other sizes in other batches ({error}): name a class "
                "with update(outputs, batch) and compute()"
            ) from error


class UserPair:
    """Calls `update(outputs, batch)` of an object of the user's by batch, then `compute()`."""

    def __init__(self, what: str, made: Callable[[], Any]) -> None:
        self._what = what
        with user_code(what, made):
            self._object = made()

    def add(self, state: State) -> None:
        """Update by a batch."""
        arrays = {name: array for name, array in state.items() if name != _COUNT}
        with user_code(f"{self._what}.update", self._object.update):
            self._object.update(*_split(arrays))

    def value(self) -> float:
        """The number that `compute` returns."""
        with user_code(f"{self._what}.compute", self._object.compute):
            found = self._object.compute()
        return _number(f"{self._what}.compute", found, self._object.compute)


def _split(arrays: Arrays) -> tuple[dict[str, Array], dict[str, Array]]:
    """The outputs and the batch of a state."""
    first, second = (
        {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
        for prefix in (_OUTPUTS, _BATCH)
    )
    return first, second


def _number(what: str, found: Any, function: Callable[..., Any]) -> float:
    if not is_number(found):
        raise UserCodeError(
            f"{what}: returned {found!r:.60}, which is no number{place_of(function)}"
        )
    return float(found)


# ------------------------------------------------------------------------------- between ranks


def packed(batches: Sequence[Sequence[State]]) -> bytes:
    """The states of batches, of each metric, as bytes."""
    heads = [
        [{name: (a.dtype.name, a.shape) for name, a in state.items()} for state in batch]
        for batch in batches
    ]
    head = json.dumps(heads).encode()
    states = chain.from_iterable(batches)
    parts = (np.ascontiguousarray(array).tobytes() for state in states for array in state.values())
    return b"".join((len(head).to_bytes(8, "little"), head, *parts))


def unpacked(told: bytes) -> Iterable[list[State]]:
    """The states that `packed` has written, batch by batch."""
    end = 8 + int.from_bytes(told[:8], "little")
    for batch in json.loads(told[8:end]):
        states: list[State] = []
        for head in batch:
            state: dict[str, Array] = {}
            for name, (dtype, shape) in head.items():
                size = int(np.prod(shape, dtype=np.int64))
                state[name] = np.frombuffer(told, np.dtype(dtype), size, end).reshape(shape)
                end += state[name].nbytes
            states.append(state)
        yield states

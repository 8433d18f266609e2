"""Recurrent operators: their cells, sizes, and the chunks of times in which they are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROWS = 256  # samples of all times of a chunk
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class Recurrence:
    """Sizes and options of one recurrent operator.

    `acts` are the activations of each direction, in lower case.
    """

    times: int
    batch: int
    inputs: int
    hidden: int
    gates: int
    layout: int
    backwards: tuple[bool, ...]
    acts: tuple[tuple[str, ...], ...]

    @property
    def rows(self) -> int:
        """Rows of the gates of one time."""
        return self.gates * self.hidden

    @property
    def many(self) -> int:
        """Times of a chunk."""
        return max(1, min(self.times, -(-ROWS // max(self.batch, 1))))

    def chunks(self) -> list[slice]:
        """The times, cut into chunks."""
        many = self.many
        return [slice(t, min(t + many, self.times)) for t in range(0, self.times, many)]

    def order(self, direction: int) -> range:
        """The times in the order in which they are processed."""
        return range(self.times)[:: -1 if self.backwards[direction] else 1]

    def track(self, a: Any, direction: int) -> Any:
        """One direction of Y or its gradient, [T, B, H]."""
        if a is None:
            return None
        return a[:, :, direction].swapaxes(0, 1) if self.layout else a[:, direction]

    def state(self, a: Any, direction: int) -> Any:
        """One direction of an initial or final state, [H, B]."""
        if a is None:
            return None
        return (a[:, direction] if self.layout else a[direction]).T

    def gate(self, a: Any, k: int) -> Any:
        """Gate `k` of the gates of one time."""
        return a[k * self.hidden : (k + 1) * self.hidden]


def recurrence(op: str, x: Any, r: Any, attributes: Mapping[str, Any]) -> Recurrence:
    """The sizes of a node of operator `op`, whose operands have the shapes of `x` and `r`.

    Raises:
        ValueError: its form is unusual.
    """
    if not is_usual(op, attributes):
        raise ValueError(f"{op} of an unusual form, which loading turns into a Scan: {attributes}")
    layout = attributes.get("layout", 0)
    backwards = DIRECTIONS[attributes.get("direction", "forward")]
    times, batch = (x.shape[1], x.shape[0]) if layout else x.shape[:2]
    acts = activations_of(op, attributes)
    return Recurrence(
        times, batch, x.shape[2], r.shape[2], GATES[op], layout, backwards, acts
    )  # fmt: skip


def is_usual(op: str, attributes: Mapping[str, Any]) -> bool:
    """Whether kernels know the form of a node: its own activations, no clip, no coupled gates.

    An RNN may have Relu.  Any other form is lowered to a Scan.
    """
    if attributes.get("clip") is not None or attributes.get("input_forget"):
        return False
    known = {tuple(name.lower() for name in ACTIVATIONS[op])}
    known |= {("relu",)} if op == "RNN" else set()
    return all(acts in known for acts in activations_of(op, attributes))


def activations_of(op: str, attributes: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """The activations of each direction, in lower case."""
    default = ACTIVATIONS[op]
    ways = len(DIRECTIONS[attributes.get("direction", "forward")])
    names: Sequence[str] = attributes.get("activations") or default * ways
    count = len(default)
    return tuple(
        tuple(name.lower() for name in names[d * count : (d + 1) * count]) for d in range(ways)
    )

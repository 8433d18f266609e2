"""Sizes and options of a recurrent node, and the chunks of times in which it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradtool.operators.activations import Activation, resolve

ROWS = 256  # samples of all times of a chunk


@dataclass(frozen=True)
class Recurrence:
    """Sizes and options of one recurrent operator."""

    times: int
    batch: int
    inputs: int
    hidden: int
    gates: int
    layout: int
    backwards: tuple[bool, ...]
    acts: list[tuple[Activation, ...]]
    clip: float | None

    @property
    def rows(self) -> int:
        """Rows of the gates of one time."""
        return self.gates * self.hidden

    @property
    def many(self) -> int:
        """Times of a chunk."""
        return max(1, min(self.times, -(-ROWS // max(self.batch, 1))))

    @property
    def plain(self) -> bool:
        """Whether slopes follow from values: only Sigmoid and Tanh, and no clipping."""
        return self.clip is None and all(a.from_value for acts in self.acts for a in acts)

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
        """Gate `k` of the gates of one time, or of a slope of them."""
        return None if a is None else a[k * self.hidden : (k + 1) * self.hidden]


def recurrence(
    x: Any, r: Any, gates: int, default: tuple[str, ...], *,
    activations: Sequence[str] | None = None, activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, clip: float | None = None,
    direction: str = "forward", layout: int = 0, **_: object,
) -> Recurrence:  # fmt: skip
    """The options of a node whose operands have the shapes of `x` and `r`."""
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    times, batch = (x.shape[1], x.shape[0]) if layout else x.shape[:2]
    acts = resolve(activations, activation_alpha, activation_beta, default, len(backwards))
    return Recurrence(
        times, batch, x.shape[2], r.shape[2], gates, layout, backwards, acts, clip
    )  # fmt: skip

"""Differences of two planned steps: by region, by operator, by tensor, by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from gradtool.comparison.metrics import Tensor, called_as
from gradtool.errors import UsageError
from gradtool.operators.kernel_sets import Kernels
from gradtool.text.words import some

Part = Literal["region", "operator", "tensor", "node"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class Snapshot:
    """A planned step as far as it is known.

    `totals` are numbers of the whole step.  `parts` are, where they are known: bytes at the peak
    step by `region` and by `operator`, and how many times a `node` runs again.  `tensors` is None
    where nothing is known of them; they are `partial` where there may be more.  Values `in_place`
    live in the memory of another tensor, and are none of their own.  `kernels` are those that the
    step is planned for.
    """

    name: str
    totals: Mapping[str, int]
    parts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] | None = None
    partial: bool = False
    in_place: frozenset[str] = frozenset()
    kernels: Kernels = "numpy"

    @property
    def known(self) -> tuple[str, ...]:
        """The known parts."""
        return tuple(
            part
            for part in PARTS
            if part in self.parts or (part == "tensor" and self.tensors is not None)
        )


@dataclass(frozen=True, slots=True)
class Moved:
    """A number before and now, None on a side without it; `why` may be empty."""

    name: str
    before: int | None
    now: int | None
    why: str = ""

    @property
    def delta(self) -> int:
        """The growth."""
        return (self.now or 0) - (self.before or 0)


@dataclass(frozen=True)
class Comparison:
    """Two sides: every common total, and the differences of each part, the largest first.

    `before` and `now` are the sides, `totals` numbers of the whole step.  `parts` has the parts
    known to both sides, `unknown` names the rest with the side that lacks it.  `renamed` counts the
    tensors that only have another name now.
    """

    before: Snapshot
    now: Snapshot
    totals: tuple[Moved, ...]
    parts: Mapping[Part, tuple[Moved, ...]]
    unknown: tuple[str, ...] = ()
    renamed: int = 0


def compare(before: Snapshot, now: Snapshot) -> Comparison:
    """Compare one step with another."""
    totals = tuple(
        Moved(name, before.totals[name], now.totals[name])
        for name in before.totals
        if name in now.totals
    )
    both: list[Part] = [part for part in PARTS if part in before.known and part in now.known]
    tensors, renamed = _tensors(before, now)
    moved = {
        part: tensors if part == "tensor" else _numbers(before.parts[part], now.parts[part])
        for part in both
    }
    return Comparison(
        before, now, totals, moved, tuple(_unknown(before, now)), renamed if "tensor" in both else 0
    )


def pairs(before: Sequence[Snapshot], now: Sequence[Snapshot]) -> list[tuple[Snapshot, Snapshot]]:
    """The pairs of sides to compare: one and one, else those of the same name.

    Raises:
        UsageError: no name is on both sides.
    """
    if len(before) == len(now) == 1:
        return [(before[0], now[0])]
    found = {side.name: side for side in now}
    matched = [(side, found[side.name]) for side in before if side.name in found]
    if not matched:
        names = [some(side.name for side in sides) for sides in (before, now)]
        raise UsageError(f"nothing to compare: no name is in both: {names[0]}; {names[1]}")
    return matched


def alone(sides: Sequence[Snapshot], matched: Sequence[Snapshot]) -> list[str]:
    """The names of sides without a counterpart."""
    names = {side.name for side in matched}
    return [side.name for side in sides if len(sides) > 1 and side.name not in names]


def _unknown(before: Snapshot, now: Snapshot) -> Iterator[str]:
    for part in PARTS:
        lacking = [(w, s) for w, s in (("before", before), ("now", now)) if part not in s.known]
        if len(lacking) == 1:
            when, side = lacking[0]
            yield f"{part}s, of which {side.name} ({when}) says nothing"


def _numbers(before: Mapping[str, int], now: Mapping[str, int]) -> tuple[Moved, ...]:
    names = dict.fromkeys([*before, *now])
    rows = [Moved(name, before.get(name), now.get(name)) for name in names]
    return _largest([row for row in rows if row.delta])


def _tensors(before: Snapshot, now: Snapshot) -> tuple[tuple[Moved, ...], int]:
    """The tensors of more or fewer bytes at the peak, and the number of renamed ones."""
    old, new = before.tensors or {}, now.tensors or {}
    old = called_as(old, new)
    rows = []
    for name in dict.fromkeys([*old, *new]):
        was, is_now = old.get(name), new.get(name)
        sizes = (was.held if was else None, is_now.held if is_now else None)
        rows.append(Moved(name, *sizes, _why(name, (before, was), (now, is_now))))
    rows = [row for row in rows if row.delta]
    gone = Counter(old[row.name].likeness for row in rows if row.now is None)
    came = Counter(new[row.name].likeness for row in rows if row.before is None)
    same = gone & came
    left = {True: Counter(same), False: Counter(same)}
    kept = []
    for row in rows:
        is_new = row.before is None
        if is_new or row.now is None:
            alike = (new[row.name] if is_new else old[row.name]).likeness
            if left[is_new][alike]:
                left[is_new][alike] -= 1
                continue
        kept.append(row)
    return _largest(kept), same.total()


def _why(
    name: str, before: tuple[Snapshot, Tensor | None], now: tuple[Snapshot, Tensor | None]
) -> str:
    """The difference of a tensor, in words."""
    (was, old), (is_now, new) = before, now
    if old is None:
        if name in was.in_place:
            return "no longer in place"
        return "held now" if was.partial else "new"
    if new is None:
        if name in is_now.in_place:
            return "in place now"
        return "no longer held" if is_now.partial else "gone"
    return "; ".join(_differences(old, new))


def _differences(before: Tensor, now: Tensor) -> Iterator[str]:
    for old, new in ((before.op, now.op), (before.dtype, now.dtype), (_shape(before), _shape(now))):
        if old != new and old and new:
            yield f"{old} → {new}"
    if before.again != now.again:
        yield "computed again" if now.again > before.again else "no longer computed again"
    if not before.held or not now.held:
        yield "held now" if now.held else "no longer held"


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _largest(rows: Sequence[Moved]) -> tuple[Moved, ...]:
    return tuple(sorted(rows, key=lambda row: (-abs(row.delta), row.name)))

"""The tensors and operators behind the growth of a metric, with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from gradtool.comparison.metrics import Metrics, Operator, Tensor, called_as
from gradtool.planning.breakdown import COMPUTED
from gradtool.planning.plan import TEMPORARIES
from gradtool.text.json_schema import Count
from gradtool.text.words import count

AT_PEAK = ("peak", "total", "load", "measured-arena", "measured-peak")
REGIONS = {"activations": COMPUTED, "temporaries": (TEMPORARIES,)}
HELD_NOW = "held at the peak now"
HELD_LONGER = "more of it held at the peak"
HELD_MORE = "holds more at the peak"
LARGER = "larger tensors"
CONSEQUENCES = (HELD_NOW, HELD_LONGER, HELD_MORE)
Size = Callable[[Tensor], int]
_BY_OPERATOR: dict[str, Callable[[Operator], int]] = {
    "flops": lambda o: o.flops,
    "extra-flops": lambda o: o.extra_flops,
    "nodes": lambda o: o.nodes + o.again,
    "recomputed": lambda o: o.again,
}


@dataclass(frozen=True, slots=True)
class Grown:
    """A grown tensor or operator, in the unit of the metric; `baseline` is 0 for a new one."""

    name: str
    kind: Literal["tensor", "operator"]
    baseline: Count
    now: Count
    why: str

    @property
    def growth(self) -> int:
        """The growth in the unit of the metric."""
        return self.now - self.baseline


def growth(before: Metrics, now: Metrics, metric: str = "peak") -> tuple[Grown, ...]:
    """The tensors, then the operators behind the growth of a metric: of each, the largest first.

    Changed tensors come before those that only happen to be held now.  Metrics of the peak step
    count the bytes held there, those of a region the bytes in it.  Tensors that only have another
    name now are none of them.
    """
    if metric in _BY_OPERATOR:
        rows = _operators(before, now, _BY_OPERATOR[metric], LARGER)
        return tuple(sorted(rows, key=_largest))
    size = _size_for(metric)
    tensors = _tensors(before, now, size)
    operators: Iterable[Grown] = ()
    if metric in AT_PEAK:
        operators = _operators(before, now, lambda o: o.held, HELD_MORE)
    return (*sorted(tensors, key=_largest), *sorted(operators, key=_largest))


def _largest(row: Grown) -> tuple[bool, int, str]:
    return row.why in CONSEQUENCES, -row.growth, row.name


def _size_for(metric: str) -> Size:
    """The bytes of a tensor counted by a metric."""
    if metric in AT_PEAK:
        return lambda tensor: tensor.held
    regions = REGIONS.get(metric, (metric,))
    return lambda tensor: tensor.bytes if tensor.region in regions else 0


def _tensors(before: Metrics, now: Metrics, size: Size) -> Iterator[Grown]:
    unlisted = _unlisted(before)
    tensors = called_as(before.tensors, now.tensors)
    gone = Counter(t.likeness for name, t in tensors.items() if name not in now.tensors)
    for name, tensor in now.tensors.items():
        old = tensors.get(name)
        taken = size(old) if old else 0
        if size(tensor) <= taken:
            continue
        if old is None:
            alike = tensor.likeness
            if gone[alike] or tensor.bytes <= unlisted:
                gone[alike] -= 1
                continue
        yield Grown(name, "tensor", taken, size(tensor), _why(name, tensor, old, before, now))


def _unlisted(before: Metrics) -> int:
    """The largest possible size of a tensor left out of the list."""
    if not before.left_out:
        return 0
    return min((tensor.bytes for tensor in before.tensors.values()), default=0)


def _why(name: str, tensor: Tensor, old: Tensor | None, before: Metrics, now: Metrics) -> str:
    if old is None:
        if tensor.op and tensor.op not in before.operators:
            return f"new operator {tensor.op}{_because(name, now)}"
        host = next((n for n, t in before.tensors.items() if name in t.also), None)
        return f"new{_because(name, now)}" if host is None else _split(host, before, now)
    reasons = []
    if old.op != tensor.op:
        reasons.append(f"{old.op or 'none'} → {tensor.op or 'none'}")
    if old.dtype != tensor.dtype:
        reasons.append(f"{old.dtype or 'none'} → {tensor.dtype or 'none'}")
    if old.shape != tensor.shape:
        reasons.append(f"{_shape(old)} → {_shape(tensor)}")
    if old.again > tensor.again:
        reasons.append(f"no longer computed again{_because(name, now)}")
    if not reasons:
        reasons.append(HELD_LONGER if old.held else HELD_NOW)
    return "; ".join(reasons)


def _split(host: str, before: Metrics, now: Metrics) -> str:
    """The reason why a value has a place of its own instead of another one's."""
    said = f"no longer in the place of {host}"
    old, new = before.tensors[host], now.tensors.get(host)
    if new is None or old.op == new.op:
        return said
    return f"{said}, {old.op or 'none'} → {new.op or 'none'}{_because(host, now)}"


def _because(name: str, now: Metrics) -> str:
    why = now.kept.get(name)
    return f": {why}" if why else ""


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _operators(
    before: Metrics, now: Metrics, size: Callable[[Operator], int], otherwise: str
) -> Iterator[Grown]:
    for name, found in now.operators.items():
        old = before.operators.get(name)
        taken = size(old) if old else 0
        if size(found) > taken:
            why = _why_operator(old, found) or otherwise
            yield Grown(name, "operator", taken, size(found), why)


def _why_operator(old: Operator | None, now: Operator) -> str:
    if old is None:
        return f"new: {count(now.nodes, 'node')}"
    reasons = []
    if old.nodes != now.nodes:
        reasons.append(f"{old.nodes} → {count(now.nodes, 'node')}")
    if old.again != now.again:
        reasons.append(f"{now.again} computed again, before {old.again}")
    return "; ".join(reasons)

"""The metrics of a planned step for the gate, and the tensors and operators behind them.

All numbers are whole and the same on every machine, but for those that are measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from gradtool.errors import UsageError
from gradtool.io.documents import is_text, is_whole
from gradtool.planning.plan import TEMPORARIES
from gradtool.text.json_schema import Count
from gradtool.text.words import suggest

Unit = Literal["bytes", "FLOPs", "steps"]


@dataclass(frozen=True)
class Metric:
    """A metric's unit, and its description."""

    unit: Unit
    what: str
    measured: bool = False


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "peak": Metric("bytes", "the arena: all that a step needs"),
        "total": Metric("bytes", "the arena and the scratch of kernels"),
        "load": Metric("bytes", "the most that is alive at once"),
        "activations": Metric(
            "bytes", "the most that activations, backward temporaries and workspace take at once"
        ),
        "temporaries": Metric("bytes", "the most that backward temporaries take at once"),
        "gradients": Metric("bytes", "the most that gradients take at once"),
        "outputs": Metric("bytes", "the most that other outputs take at once"),
        "parameters": Metric("bytes", "what is trained"),
        "state": Metric("bytes", "running statistics and the state of an optimizer"),
        "inputs": Metric("bytes", "inputs and labels"),
        "flops": Metric("FLOPs", "work of a step, recompute included"),
        "extra-flops": Metric("FLOPs", "recomputed work"),
        "nodes": Metric("steps", "steps that run, those that run again included"),
        "recomputed": Metric("steps", "steps that run again"),
        "measured-arena": Metric("bytes", "the last byte that a run on the CPU changed", True),
        "measured-peak": Metric("bytes", "the same, and the other bytes of the run", True),
    }
)


def metric_named(name: str, where: str) -> str:
    """The name of a metric. Raises UsageError if there is no such metric."""
    if name not in METRICS:
        hint = suggest(name, METRICS) or f"; there are {', '.join(METRICS)}"
        raise UsageError(f"{where}: there is no metric {name[:40]!r}{hint}")
    return name


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor, or the workspace of a step, by its name in forward or backward.

    `bytes` is its size, `held` the bytes of all its instances at the peak step, and `again` the
    number of its recomputations.  A workspace has neither shape nor dtype.  `also` are the other
    values that lie in its place, where operators write in place.
    """

    op: str
    region: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    held: int
    again: int
    also: tuple[str, ...] = ()

    @property
    def likeness(self) -> tuple[object, ...]:
        """All facts of a tensor but its names.

        Results of backward may be counted among activations in a baseline.
        """
        region = "activations" if self.region == TEMPORARIES else self.region
        return self.op, region, self.shape, self.dtype, self.held


def called_as(before: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors before, each storage called by the value that names it now.

    The producer of that value is taken from now, too.  Instances of one name whose names differ now
    are tensors of their own.
    """
    names = _renamed(before, now)
    found = {
        names.get(name, name): replace(tensor, op=now[names[name]].op) if name in names else tensor
        for name, tensor in before.items()
    }
    for name in (n for n in now if n not in found):
        others = (names.get(also, also) for also in now[name].also)
        other = next((o for o in others if _lends(o, found, now, now[name])), None)
        if other is not None:
            rest = found[other].held - now[name].held
            found[name] = replace(found[other], op=now[name].op, held=now[name].held)
            found[other] = replace(found[other], held=rest)
    return found


def _lends(name: str, before: Mapping[str, Tensor], now: Mapping[str, Tensor], to: Tensor) -> bool:
    """Whether a tensor holds so much less now that another one is an instance of it before."""
    if name not in before or name not in now:
        return False
    old = before[name]
    return old.bytes >= to.bytes and old.held >= now[name].held + to.held


def _renamed(before: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> dict[str, str]:
    """By name before, the name now, of no other storage; only of those that changed."""
    gone, new = before.keys() - now.keys(), now.keys() - before.keys()
    found: dict[str, str] = {}
    for name in (n for n in now if n in new):
        other = next((o for o in now[name].also if o in gone and o not in found), None)
        if other is not None:
            found[other] = name
    taken = set(found.values())
    for name in (n for n in before if n in gone and n not in found):
        other = next((o for o in before[name].also if o in new and o not in taken), None)
        if other is not None:
            found[name] = other
            taken.add(other)
    return found


@dataclass(frozen=True, slots=True)
class Operator:
    """All steps of an operator: `nodes` without those that run again, which are `again`.

    `held` are bytes at the peak step; operations of unknown cost count as none.
    """

    nodes: Count
    again: Count
    flops: Count
    extra_flops: Count
    held: Count


class TensorRecord(TypedDict):
    """A tensor, or the workspace of a step, by its name in forward or backward."""

    op: str
    region: str
    shape: list[Count]
    dtype: str
    bytes: Count
    held: Annotated[Count, "Bytes at the peak step, all instances."]
    again: Annotated[Count, "Times that it is computed again."]
    also: NotRequired[Annotated[list[str], "Other values that lie in its place, if there are any."]]


class MetricsRecord(TypedDict):
    """The numbers of a planned step, the same on every machine."""

    left_out: Annotated[Count, "Tensors that are not listed: smaller than those that are."]
    metrics: dict[str, Count]
    operators: dict[str, Operator]
    tensors: dict[str, TensorRecord]


@dataclass(frozen=True)
class Metrics:
    """A planned step in numbers.

    `tensors` and `operators` are the largest ones only; `left_out` is how many tensors are not
    among them.  `kept` says of tensors that are not computed again why not, `notes` are lines for
    people, and a plan that is `cut_short` depends on the clock.
    """

    values: Mapping[str, int]
    tensors: Mapping[str, Tensor]
    operators: Mapping[str, Operator]
    left_out: int = 0
    kept: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cut_short: bool = False

    def __getitem__(self, metric: str) -> int:
        return self.values[metric]

    def document(self) -> MetricsRecord:
        """The numbers for JSON: the content for `read`, without measurements and messages."""
        return {
            "left_out": self.left_out,
            "metrics": {n: v for n, v in self.values.items() if not METRICS[n].measured},
            "operators": dict(self.operators),
            "tensors": {name: _document(found) for name, found in self.tensors.items()},
        }

    @classmethod
    def read(cls, document: Mapping[str, Any], where: str) -> Metrics:
        """The metrics in a document. Raises UsageError if it is none of ours."""
        try:
            return cls(
                values=wholes(document["metrics"]),
                tensors={name: _tensor(each) for name, each in document["tensors"].items()},
                operators={
                    name: Operator(**wholes(each)) for name, each in document["operators"].items()
                },
                left_out=wholes(document)["left_out"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{where}: is no baseline: write it anew with --update") from error


def wholes(table: Mapping[str, Any]) -> dict[str, int]:
    """The entries of a table that are whole numbers."""
    return {name: value for name, value in table.items() if is_whole(value)}


def _document(tensor: Tensor) -> TensorRecord:
    """A tensor for JSON; values that share its place stand there only if there are any."""
    found: TensorRecord = {
        "op": tensor.op, "region": tensor.region, "shape": list(tensor.shape),
        "dtype": tensor.dtype, "bytes": tensor.bytes, "held": tensor.held, "again": tensor.again,
    }  # fmt: skip
    return {**found, "also": list(tensor.also)} if tensor.also else found


def _tensor(table: Mapping[str, Any]) -> Tensor:
    shape, also = table["shape"], table.get("also", [])
    texts = [table[key] for key in ("op", "region", "dtype")]
    if not all(map(is_text, (*texts, *also))) or not all(map(is_whole, shape)):
        raise ValueError("a tensor of other fields")
    numbers = {key: table[key] for key in ("bytes", "held", "again")}
    if not all(map(is_whole, numbers.values())):
        raise ValueError("a tensor of other numbers")
    op, region, dtype = texts
    return Tensor(op, region, tuple(shape), dtype, **numbers, also=tuple(also))

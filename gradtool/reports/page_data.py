"""The data of the HTML report, as columns of whole numbers that point into lists of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gradtool.reports.memory import footer
from gradtool.reports.plans import Row
from gradtool.text.names import escape, shorten
from gradtool.text.units import format_percent

if TYPE_CHECKING:
    from gradtool.planning.plan import Buffer, Plan
    from gradtool.program import Step
    from gradtool.workloads.planned import Planned

LONGEST = 400  # characters of a name; of a longer one the middle is left out
NODE = ("name", "op", "stage", "source")
TENSOR = ("name", "region", "later", "bytes", "shape", "type", "also")


@dataclass(frozen=True)
class Page:
    """The subject of a report: the plans of one model, the one without recompute first.

    `dims` are all sizes used, `assumed` those nobody gave; `frontier` are plans within budgets.
    """

    model: str
    rows: Sequence[Row]
    dims: Mapping[str, int]
    assumed: Mapping[str, int]
    frontier: Sequence[Planned] = ()


def page_data(page: Page) -> dict[str, Any]:
    """Everything the page's script reads.

    Columns `nodes`, `tensors` and `first` of a plan are differences to the entry before; `held` is
    how many steps after `first` the tensor lasts, `turn` after how many it is of the region
    `later`, 0 if of none.  Steps count from 0.  Of a string there is how many characters it begins
    with are those of the string before, and the rest.
    """
    strings, nodes, tensors = Numbered(), Numbered(), Numbered()
    plans = [_plan(row, page.rows[0], strings, nodes, tensors) for row in page.rows]
    return {
        "model": shown(page.model),
        "sizes": _sizes(page),
        "footer": footer([row.plan for row in page.rows]),
        "plans": plans,
        "nodes": _columns(NODE, nodes),
        "tensors": _columns(TENSOR, tensors),
        "strings": _strings(map(shown, strings)),
        "frontier": _frontier(page),
    }


def shown(name: str) -> str:
    """An inert name of limited length."""
    return shorten(escape(name), LONGEST)


class Numbered(dict[Any, int]):
    """Things numbered in the order of their first occurrence."""

    def number(self, thing: Any) -> int:
        """The number of a thing, a new one if it is new."""
        return self.setdefault(thing, len(self))


def _plan(
    row: Row, kept: Row, strings: Numbered, nodes: Numbered, tensors: Numbered
) -> dict[str, Any]:
    plan, share = row.plan, row.extra_share
    return {
        "name": shown(plan.name),
        "title": shown(row.title),
        "peak": int(plan.peak),
        "peak_step": int(plan.peak_step),
        "saved": format_percent(row.saved(kept)),
        "extra": "unknown" if share is None else format_percent(share, signed=True),
        "nodes": _differences(nodes.number(_node(step, strings)) for step in plan.program.steps),
        "tensors": _differences(tensors.number(_tensor(plan, b, strings)) for b in plan.buffers),
        "first": _differences(b.first for b in plan.buffers),
        "held": [int(b.last - b.first) for b in plan.buffers],
        "turn": [0 if b.turn is None else int(b.turn - b.first) for b in plan.buffers],
    }


def _node(step: Step, strings: Numbered) -> tuple[int, ...]:
    texts = (step.name, step.op, step.stage, step.source)
    return tuple(map(strings.number, texts))


def _tensor(plan: Plan, buffer: Buffer, strings: Numbered) -> tuple[int, ...]:
    spec = plan.spec(buffer)
    shape = "" if spec is None else "x".join(map(str, spec.shape)) or "scalar"
    dtype = "" if spec is None else spec.dtype.name
    regions = [span.region for span in buffer.spans]
    later = "" if len(regions) == 1 else regions[1]
    names = map(strings.number, (buffer.name, regions[0], later))
    also = ", ".join(plan.program.values[v].name for v in plan.also(buffer))
    texts = map(strings.number, (shape, dtype, also))
    return (*names, int(buffer.bytes), *texts)


def _columns(titles: Sequence[str], rows: Iterable[tuple[int, ...]]) -> dict[str, list[int]]:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in titles]
    return dict(zip(titles, columns, strict=True))


def _strings(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Names as suffixes to the shared prefix of the name before.

    Its length is counted as scripts count, in UTF-16.
    """
    shared, rest = [], []
    for before, text in pairwise(("", *texts)):
        pairs = enumerate(zip(before, text, strict=False))
        common = next((n for n, (a, b) in pairs if a != b), min(len(before), len(text)))
        shared.append(len(text[:common].encode("utf-16-le")) // 2)
        rest.append(text[common:])
    return {"shared": shared, "rest": rest}


def _differences(numbers: Iterable[int]) -> list[int]:
    return [int(b - a) for a, b in pairwise((0, *numbers))]


def _sizes(page: Page) -> str:
    """`batch=32 (assumed), sequence=128`."""
    return ", ".join(
        f"{shown(name)}={page.dims[name]}{' (assumed)' if name in page.assumed else ''}"
        for name in sorted(page.dims)
    )


def _frontier(page: Page) -> list[dict[str, Any]] | None:
    """The points with a proof, budgets rising; work as a share of a step."""
    pairs = [(each.plan, each.proof) for each in page.frontier if each.proof is not None]
    return [
        {
            "budget": int(proof.budget),
            "peak": int(plan.peak),
            "extra": round(proof.share(proof.extra), 6),
            "bound": round(proof.share(proof.bound), 6),
            "how": proof.how,
        }
        for plan, proof in pairs
    ] or None

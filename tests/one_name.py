"""Whether all that speaks of a plan calls each storage by one name, and contradicts itself nowhere.

The table of `report`, its page, `mirror --explain` and what the gate records are held against the
buffers of a plan, and those against the steps of its program.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from pages import whole

from gradtool.comparison.footprint import all_tensors, name_of
from gradtool.errors import GradtoolError
from gradtool.planning.plan import ALWAYS_LIVE
from gradtool.planning.recompute.explain import explain
from gradtool.reports import breakdown, explanation, memory
from gradtool.reports.page_data import Page, page_data
from gradtool.reports.plans import Row

SENTENCES = {
    "runs again": r" (computed again|its step runs again) in backward.*; applied",
    "may run again": r" (may be computed again|its step may run again) in backward.*; not .*",
    "again itself": r" (may be )?computed again in backward.*",
    "kept": r" kept( for .*)?: .*",
    "no point": r" computing it again: .*",
    "unread": r" computing it again: backward does not read it",
    "price": r" computing it again would run .*",
    "read by backward": r" read by .*\((backward|recompute|update), step \d+\)",
    "read": r" read by .*",
    "nobody": r" nobody reads it",
    "always": r".*, always alive",
    "life": r" alive from step .*",
}
NEVER = [
    ("runs again", "may run again"), ("runs again", "kept"), ("may run again", "kept"),
    ("again itself", "no point"), ("unread", "read by backward"), ("unread", "kept"),
    ("unread", "runs again"), ("unread", "may run again"), ("no point", "price"),
    ("nobody", "read"), ("always", "life"), ("always", "runs again"), ("always", "kept"),
]  # fmt: skip
_LIFE = re.compile(r" alive from step (\d+) to step (\d+); it (is|is not) alive at the peak .*")
_PLACE = re.compile(r" its place is held from step (\d+) to step (\d+), in turn with .*")


def contradictions(lines: list[str]) -> Iterator[str]:
    """What of an explanation cannot be true of one value at once."""
    said = {n for n, text in SENTENCES.items() if any(re.fullmatch(text, each) for each in lines)}
    yield from (f"{a}, and {b}" for a, b in NEVER if {a, b} <= said)
    text = "\n".join(lines)
    life, place = (re.search(f"^{each.pattern}$", text, re.MULTILINE) for each in (_LIFE, _PLACE))
    if text.count("alive at the peak") > 1:
        yield "alive at the peak twice"
    if life:
        first, last = int(life[1]), int(life[2])
        reads = map(int, re.findall(r"^ read by .*, step (\d+)\)$", text, re.MULTILINE))
        yield from (
            f"read at step {at}, {first} to {last}" for at in reads if not first <= at <= last
        )
        if place and not int(place[1]) <= first <= last <= int(place[2]):
            yield "it outlives its place"


def disagreements(plan) -> Iterator[str]:
    """Where the table, the page and the gate say something else than the buffers of a plan."""
    alive = plan.live(plan.peak_step)
    held = sorted((b.name, b.region, int(b.bytes), int(b.first), int(b.last)) for b in alive)
    rows = memory.plan_json(plan, "m", {})["alive"]
    keys = ("name", "region", "bytes", "first", "last")
    if sorted(tuple(row[key] for key in keys) for row in rows) != held:
        yield "the JSON of the report"
    table = Counter(row[0] for row in memory.alive_at_peak(plan, None).rows)
    if table != Counter(each[0] for each in held):
        yield "the table of the report"
    if sorted(on_page(plan)) != held:
        yield "the page"
    if breakdown.held(plan, "tensor") != dict(Counter(_sizes((b.name, b) for b in alive))):
        yield "the tensors of a breakdown"
    gate = {name: each.held for name, each in all_tensors(plan).items() if each.held}
    if gate != dict(_sizes((name_of(plan, b), b) for b in alive)):
        yield "the gate"
    yield from _not_there(plan)


def _sizes(named) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, buffer in named:
        found[name] += int(buffer.bytes)
    return found


def _not_there(plan) -> Iterator[str]:
    """Buffers that are not called by the value that was written into them last by the peak."""
    born = {v: i for i, step in enumerate(plan.program.steps) for v in step.writes}
    for buffer in plan.live(plan.peak_step):
        if buffer.region in ALWAYS_LIVE or not buffer.values:
            continue
        holder = max((v for v in buffer.values if born[v] <= plan.peak_step), key=born.__getitem__)
        if plan.program.values[holder].name != buffer.name:
            yield f"{buffer.name}: {plan.program.values[holder].name} lies there"


def on_page(plan) -> Iterator[tuple[str, str, int, int, int]]:
    """Name, region, bytes, first and last step of what is alive at the peak, as the page has it."""
    data = page_data(Page("m", [Row("m", whole(plan), 1, 0)], {}, {}))
    strings, before = [], b""
    for shared, rest in zip(data["strings"]["shared"], data["strings"]["rest"], strict=True):
        before = before[: 2 * shared] + rest.encode("utf-16-le", "surrogatepass")
        strings.append(before.decode("utf-16-le", "surrogatepass"))
    table, (drawn,) = data["tensors"], data["plans"]
    columns = (drawn["held"], drawn["turn"])
    for tensor, first, held, turn in zip(
        accumulate(drawn["tensors"]), accumulate(drawn["first"]), *columns, strict=True
    ):
        region, later = strings[table["region"][tensor]], strings[table["later"][tensor]]
        if later and drawn["peak_step"] >= first + turn:
            region = later
        if first <= drawn["peak_step"] <= first + held:
            yield (
                strings[table["name"][tensor]],
                region,
                table["bytes"][tensor],
                first,
                first + held,
            )


def unexplained(program, plan, decision=None, schedule=None) -> Iterator[str]:
    """Names of a plan at its peak that `--explain` refuses, or takes for something else."""
    for buffer in plan.live(plan.peak_step):
        try:
            facts = explain(program, buffer.name, decision=decision, schedule=schedule)
        except GradtoolError as error:
            yield f"{buffer.name}: {error}"
            continue
        if (facts.instance_of or facts.value) != name_of(plan, buffer):
            yield f"{buffer.name}: explained as {facts.instance_of}"


def misexplained(program, kept, decision=None, schedule=None) -> Iterator[str]:
    """Values at the peak of keeping everything of which `--explain` says what the plan does not."""
    for buffer in kept.live(kept.peak_step):
        facts = explain(program, buffer.name, decision=decision, schedule=schedule)
        place = facts.shared
        name, first, last = facts.storage, facts.born, facts.last
        if place is not None:
            name, first, last = place.name, place.first, place.last
        if buffer.region in ALWAYS_LIVE:
            first, last = (0, buffer.last) if facts.born is None else (first, last)
        if (name, facts.region, facts.bytes, first, last) != (
            buffer.name, buffer.region, buffer.bytes, buffer.first, buffer.last
        ):  # fmt: skip
            yield f"{buffer.name}: {name}, {facts.region}, {facts.bytes} B, {first} to {last}"
        if not facts.at_peak:
            yield f"{buffer.name}: not alive at the peak"


def contradicted(program, decision=None, schedule=None) -> Iterator[str]:
    """Explanations of values of a program that contradict themselves."""
    for value in program.values:
        facts = explain(program, value.name, decision=decision, schedule=schedule)
        lines = explanation.lines(facts)
        yield from (f"{value.name}: {each}: {lines}" for each in contradictions(lines))

"""The forms that the loops of a training graph can have: what each keeps, and which are tried.

A loop keeps what each turn stacks (as it is differentiated), one set of states a turn, or one a
segment of turns, of which a segment keeps all it stacks or again one a turn.  Bytes choose between
them here, by arithmetic; plans of the graphs that come of it decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import onnx_ir as ir

from gradtool.graph.families import full_name
from gradtool.graph.prune import inner_nodes
from gradtool.passes._loops import Pair, pairs
from gradtool.passes._segments import INNER
from gradtool.passes.residuals import Sizes
from gradtool.passes.turns_again import take_again
from gradtool.planning.recompute.policy import POLICIES, Policy
from gradtool.text.words import count
from gradtool.workloads.planned import Planned
from gradtool.workloads.plans import of_form
from gradtool.workloads.workload import Workload

Turns = Mapping[str, int]  # by the name of a loop's gradient, how many turns it takes again at once


@dataclass(frozen=True)
class Choice:
    """Turns to take again at once, within each other, and the bytes that this keeps."""

    lengths: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Loop:
    """Bytes of a loop and its gradient in each turn.

    `inside` is what is stacked and computed within a turn, `held` what else is stacked, `missing`
    what has to be, to compute `inside` again; `states` are those of the loop, `sums` those of its
    gradient.  `slices` are read and written by both, `rows` written alone.  Of the turns, `most`
    can be taken again at once.
    """

    name: str
    count: int
    most: int
    inside: int
    held: int
    missing: int
    states: int
    slices: int
    rows: int
    sums: int

    @classmethod
    def of(cls, pair: Pair, sizes: Sizes) -> Loop:
        """The bytes of a pair at given sizes."""

        def total(values: Iterable[ir.Value]) -> int:
            return sum(sizes.bytes(v) or 0 for v in values)

        f, b = pair.forward, pair.backward
        rows = [v for row, v in enumerate(f.rows) if row not in pair.stacks]
        others = [v for v in b.slices if v not in pair.stacks.values()]
        return cls(
            name=pair.name,
            count=sizes.size(pair.count),
            most=pair.most,
            inside=total(f.rows[row] for row in pair.inside),
            held=total(pair.held.values()),
            missing=total(pair.missing),
            states=total(f.formal),
            slices=total((*f.slices, *others, *rows, *b.rows)),
            rows=total((*rows, *b.rows)),
            sums=total(b.formal),
        )

    @property
    def kept(self) -> int:
        """The stacked bytes of keeping everything."""
        return self.count * (self.inside + self.held)

    @property
    def by_turns(self) -> Choice:
        """Turns taken again one at a time, if this keeps less: the states between are kept."""
        size = self.count * (self.held + self.missing) + self.inside
        return Choice((1,), size) if size < self.kept else Choice((), self.kept)

    def choice(self, depth: int) -> Choice:
        """The form of least memory with at most `depth` reruns of a turn."""
        found = [self.by_turns]
        if self.most > 1:
            found += self._segmented((), self.inside + self.held, 0)
            if depth > 1 and self.inside:
                found += self._segmented((1,), self.held + self.missing, self.inside)
        return min(found, key=lambda each: (each.bytes, len(each.lengths)))

    def _segmented(self, within: tuple[int, ...], each: int, once: int) -> Iterator[Choice]:
        """Segments that keep so many bytes for each of their turns, and for one of them."""
        each += self.slices
        ideal = math.sqrt(self.count * self.states / max(each, 1))
        near = {math.floor(ideal), math.ceil(ideal)}
        for length in sorted({n for n in near | _divisors(self.count) if 1 < n < self.count}):
            segments, rest = divmod(self.count, length)
            size = segments * self.states + length * each + once + 2 * self.sums
            size += self.count * self.rows + rest * each if rest else 0
            yield Choice((length, *within), size)


def _divisors(count: int) -> set[int]:
    small = [n for n in range(1, math.isqrt(count) + 1) if count % n == 0]
    return {*small, *(count // n for n in small)}


class Loops:
    """The loops of a training graph with something to save, the largest saving first."""

    def __init__(self, work: Workload) -> None:
        self._work, self._sizes = work, Sizes(work.dims)
        known = {step.name for step in work.apart.steps if step.flops is not None}
        self._pairs = [
            pair for pair in pairs(work.model) if {pair.name, pair.forward.node.name} <= known
        ]
        self._made: dict[tuple[tuple[str, int], ...], Workload] = {}

    @cached_property
    def _loops(self) -> list[Loop]:
        found = [Loop.of(pair, self._sizes) for pair in self._pairs]
        return sorted(found, key=lambda each: each.choice(1).bytes - each.kept)

    @cached_property
    def once(self) -> Workload | None:
        """The graph of least memory with one rerun of each turn."""
        return self._formed(_turns(self._loops, 1))

    @cached_property
    def forms(self) -> tuple[Workload, ...]:
        """Graphs that keep ever less: turn by turn, a few of the loops, all, turns within turns."""
        found = [
            self.cheap(POLICIES["mirror"]),
            self._formed({loop.name: 1 for loop in self._loops if loop.by_turns.lengths}),
        ]
        number = 1
        while number < len(self._loops):
            found.append(self._formed(_turns(self._loops[:number], 1)))
            number *= 2
        found += [self.once, self._formed(_turns(self._loops, 2))]
        deepest = next((each for each in reversed(found) if each is not None), self._work)
        found.append(self._formed({**deepest.turns, **self._inside(deepest)}))
        made = {tuple(each.turns.items()): each for each in found if each is not None}
        return tuple(made.values())

    def cheap(self, policy: Policy, kept: frozenset[str] = frozenset()) -> Workload | None:
        """The graph in which turns are taken again, one at a time, whose nodes a policy allows.

        The loops of `kept`, by name, stay as they are.
        """
        names = {}
        for pair in self._pairs:
            nodes, _ = pair.again()
            allowed = all(
                policy.allows(full_name(n.domain, n.op_type))
                for node in nodes for n in (node, *inner_nodes(node))
            )  # fmt: skip
            stays = pair.forward.node.name in kept
            if allowed and not stays and Loop.of(pair, self._sizes).by_turns.lengths:
                names[pair.name] = 1
        return self._formed(names)

    def _inside(self, work: Workload) -> Turns:
        """Loops within turns, with known costs."""
        if any(s.flops is None for s in work.apart.steps if s.op in ("Loop", "Scan")):
            return {}
        found = [p for p in pairs(work.model) if p.name not in work.turns]
        inner = [p for p in found if p.backward.node.graph is not work.model.graph]
        return _turns([Loop.of(pair, self._sizes) for pair in inner], 1)

    def _formed(self, turns: Turns) -> Workload | None:
        key = tuple(turns.items())
        if key and key not in self._made:
            self._made[key] = formed(self._work, turns)
        return self._made.get(key)


def _turns(loops: Iterable[Loop], depth: int) -> Turns:
    return {
        loop.name + place * INNER: length
        for loop in loops
        for place, length in enumerate(loop.choice(depth).lengths)
    }


def formed(work: Workload, turns: Turns) -> Workload:
    """The graph in which turns of loops are taken again.

    Raises:
        ValueError: it has no such loops.
    """
    model = work.model.clone()
    model.meta.update(work.model.meta)
    take_again(model, turns)
    return replace(of_form(work, model), turns=dict(turns))


def scope(work: Workload) -> list[str]:
    """The forms of loops covered by a proof of a graph; nothing where it has one form."""
    known = work.memo.get(Loops)
    forms = known.forms if isinstance(known, Loops) else ()
    if not forms:
        return []
    return [f"proven of plans with the loops as they are, or in {count(len(forms), 'other form')}"]


def taken(found: Planned) -> list[str]:
    """The turns that a plan takes again."""
    turns = {} if found.form is None else found.form.turns
    said = []
    for name in turns:
        if name.removesuffix(INNER) not in turns or not name.endswith(INNER):
            within = [turns[n] for n in (name, name + INNER) if n in turns]
            times = ", then ".join(f"{length} at a time" for length in within)
            said.append(f"{found.name}: {name} takes turns again, {times}")
    return said


def loops_of(work: Workload) -> Loops:
    """The loops of a training graph, looked for once."""
    key: Callable[[Workload], Loops] = Loops
    if key not in work.memo:
        work.memo[key] = Loops(work)
    found = work.memo[key]
    assert isinstance(found, Loops)  # noqa: S101 - see above
    return found

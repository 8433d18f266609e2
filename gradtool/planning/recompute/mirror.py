"""Choice of forward steps to recompute in backward, by Echo's local rule: the decision alone.

Source: `Gradient` of MXNet 1.9.1, src/nnvm/gradient.cc (Zheng et al. 2020, arXiv:1805.08899).  We
differ in that a walk never visits a step twice, steps go in file order where the original iterates
a hash map, the outputs of a step that no forward step reads are heads like graph outputs, and
constants count as attributes, which they are in MXNet.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from gradtool.planning.recompute.policy import Marks
from gradtool.program import Program, Step

NO_DATA = frozenset({"Shape", "Size"})


class ForwardGraph:
    """Forward steps by number, and the storages between them; constants count as attributes.

    `forward` are the steps in file order, `may` those that may run twice, `ends` those that compute
    an output or a value that no forward step reads.  `reads` and `writes` are the storages of each,
    `sources` the forward steps that it reads from, `targets` those that read from it.  `readers`
    are all steps that need the data of a storage, and not its shape alone; `beside` the forward
    ones among them.  `bytes` are full sizes by value, those of inputs and views included.
    """

    def __init__(self, program: Program, refused: Iterable[int]) -> None:
        steps = program.steps
        self.forward = [i for i, step in enumerate(steps) if step.stage == "forward"]
        known = set(self.forward)
        self.may = known - set(refused)
        self.writes = {i: tuple(steps[i].writes) for i in self.forward}
        producer = {v: i for i in self.forward for v in self.writes[i]}
        self.reads: dict[int, tuple[int, ...]] = {}
        self.readers: dict[int, list[int]] = {}
        for index, step in enumerate(steps):
            roots = dict.fromkeys(program.storage(v) for v in step.reads)
            reads = tuple(r for r in roots if program.values[r].kind not in ("constant", "host"))
            if index in known:
                self.reads[index] = reads
            for value in () if step.op in NO_DATA else reads:
                self.readers.setdefault(value, []).append(index)
        self.beside = {v: [s for s in r if s in known] for v, r in self.readers.items()}
        self.sources = {
            i: list(dict.fromkeys(producer[v] for v in self.reads[i] if v in producer))
            for i in self.forward
        }
        self.targets: dict[int, list[int]] = {i: [] for i in self.forward}
        for index, sources in self.sources.items():
            for source in sources:
                self.targets[source].append(index)
        results = {producer.get(program.storage(v)) for v in program.outputs}
        self.ends = {i for i in self.forward if i in results or not self.targets[i]}
        specs = [datum.spec for datum in program.values]
        self.bytes = [0 if spec is None else spec.bytes for spec in specs]


class Why(Enum):
    """The reason of a decision."""

    CHEAPER = "keeping it takes more bytes than it frees"
    FREED = "keeping it frees as many bytes as it takes"
    POLICY = "the policy runs this operator once"
    NAMED = "it is to be kept, by name"
    ONCE = "it draws at random or its sizes depend on data"


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision about one forward step, and its reason."""

    step: str
    op: str
    mirrored: bool
    why: Why


@dataclass(frozen=True)
class Decision:
    """A choice for each forward step in file order, and the connected groups of mirrored ones."""

    choices: tuple[Choice, ...]
    groups: tuple[tuple[str, ...], ...]

    @property
    def marks(self) -> Mapping[str, bool]:
        """Whether a step is mirrored, by name."""
        return {choice.step: choice.mirrored for choice in self.choices}

    @property
    def mirrored(self) -> int:
        """The number of mirrored steps."""
        return sum(choice.mirrored for choice in self.choices)


def decide(
    program: Program,
    policy: Callable[[Step], bool],
    named: Marks = Marks(),  # noqa: B008 - frozen
) -> Decision:
    """Decide for each forward step whether backward should compute it again.

    `program` has a step for every node (`flatten(…, views=False)`).  `policy` says which operators
    may run twice; steps of `named` are an exception to it.
    """
    refused: dict[int, Why] = {}
    for index, step in enumerate(program.steps):
        why = _refusal(step, policy, named)
        if why is not None:
            refused[index] = why
    graph = ForwardGraph(program, refused.keys())
    kept: set[int] = set()
    decided: set[int] = set()
    heads = deque(sorted(graph.ends))
    while heads:
        head = heads.popleft()
        if head in decided:
            continue
        subgraph = _closed(graph, head, decided)
        kept |= _kept(graph, sorted(subgraph & graph.may), kept)
        decided |= subgraph
        heads.extend(sorted(h for s in subgraph for h in graph.sources[s] if h not in graph.may))
    refused.update(dict.fromkeys(kept, Why.FREED))
    mirrored = [s for s in graph.forward if s not in refused]
    names = [step.name for step in program.steps]
    return Decision(
        choices=tuple(
            Choice(names[s], program.steps[s].op, s not in refused, refused.get(s, Why.CHEAPER))
            for s in graph.forward
        ),
        groups=tuple(tuple(names[s] for s in group) for group in _connected(graph, mirrored)),
    )


def _refusal(step: Step, policy: Callable[[Step], bool], named: Marks) -> Why | None:
    """Why a step may not run twice, None if it may."""
    if not step.recomputable:
        return Why.ONCE
    if step.name in named.keep:
        return Why.NAMED
    return None if step.name in named.drop or policy(step) else Why.POLICY


def _closed(graph: ForwardGraph, head: int, decided: set[int]) -> set[int]:
    """The steps whose decisions depend on the one about the reads of `head`.

    All forward readers of a value share the decision about its producer.  The reads of such a
    reader, up to the end of the mirror path, follow from that decision and need no walk.
    """
    subgraph: set[int] = set()
    waiting = [head]
    while waiting:
        step = waiting.pop()
        if step in subgraph or step in decided:
            continue
        subgraph.add(step)
        waiting.extend(s for s in graph.sources[step] if s in graph.may)
        for value in graph.reads[step]:
            waiting.extend(graph.beside.get(value, ()))
    return subgraph


def _kept(graph: ForwardGraph, members: list[int], kept: set[int]) -> set[int]:
    """The `members` to keep, beside the steps `kept` already.

    All members start on the mirror path.  Frontier steps, whose inputs are all there without it,
    leave it together with those that share an input with them if that frees as many bytes as it
    takes; the first in file order that can do so goes first.
    """
    missing = {
        s: sum(1 for p in graph.sources[s] if p in graph.may and p not in kept) for s in members
    }
    frontier = {s for s in members if not missing[s]}
    waiting = [s for s in members if not missing[s]]
    left: set[int] = set()
    while waiting:
        first = heapq.heappop(waiting)
        if first not in frontier:
            continue
        group = _sharing(graph, first, frontier)
        if not _frees(graph, group, frontier):
            continue
        left |= group
        frontier -= group
        fresh = set()
        for step in sorted(group):
            for target in graph.targets[step]:
                if target in missing:
                    missing[target] -= 1
                    if not missing[target]:
                        fresh.add(target)
        frontier |= fresh
        for step in sorted(fresh):
            heapq.heappush(waiting, min(_sharing(graph, step, frontier)))
    return left


def _sharing(graph: ForwardGraph, first: int, frontier: set[int]) -> set[int]:
    """Frontier steps that share an input with `first`, directly or through one another."""
    group, waiting, followed = {first}, [first], set[int]()
    while waiting:
        for value in graph.reads[waiting.pop()]:
            if value in followed:
                continue
            followed.add(value)
            more = [r for r in graph.beside.get(value, ()) if r in frontier and r not in group]
            group.update(more)
            waiting.extend(more)
    return group


def _frees(graph: ForwardGraph, group: set[int], frontier: set[int]) -> bool:
    """Whether keeping the outputs of `group` frees at least as many bytes as it takes."""
    taken = {v for s in group for v in graph.writes[s] if v in graph.readers}
    freed: set[int] = set()
    for value in {v for s in group for v in graph.reads[s]}:
        inside = all(reader in frontier for reader in graph.readers.get(value, ()))
        (freed if inside else taken).add(value)
    return sum(graph.bytes[v] for v in freed) >= sum(graph.bytes[v] for v in taken)


def _connected(graph: ForwardGraph, steps: list[int]) -> Iterator[tuple[int, ...]]:
    """The steps in groups connected by their reads of each other."""
    members, seen = set(steps), set[int]()
    for first in steps:
        if first in seen:
            continue
        group, waiting = [], [first]
        seen.add(first)
        while waiting:
            step = waiting.pop()
            group.append(step)
            for other in (*graph.sources[step], *graph.targets[step]):
                if other in members and other not in seen:
                    seen.add(other)
                    waiting.append(other)
        yield tuple(sorted(group))

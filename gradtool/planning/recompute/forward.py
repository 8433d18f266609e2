"""The forward part of a program as a graph of steps: who reads what, and who needs its numbers."""

from __future__ import annotations

from collections.abc import Iterable

from gradtool.program import Program

NO_DATA = frozenset({"Shape", "Size"})


class ForwardGraph:
    """Forward steps by number, and the storages between them; constants count as attributes.

    `forward` are the steps in file order, `may` those that may run twice, `ends` those that compute
    an output or what no forward step reads.  `reads` and `writes` are the storages of each,
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

"""Echo's decision told literally: everything is found again from the start after every change.

Only for small graphs: its walks visit steps again and again.
"""

from __future__ import annotations


class Echo:
    """Steps by name: `data` are the storages a step reads, `needs` those whose numbers it needs."""

    def __init__(self, program, policy):
        self.program = program
        self.forward = [s for s in program.steps if s.stage == "forward"]
        self.order = {s.name: i for i, s in enumerate(self.forward)}
        self.may = {s.name for s in self.forward if s.recomputable and policy(s)}
        self.writes = {s.name: set(s.writes) for s in self.forward}
        self.writer = {v: s.name for s in self.forward for v in s.writes}
        self.data = {s.name: self._read(s) for s in program.steps}
        self.needs = {
            s.name: set() if s.op in ("Shape", "Size") else self.data[s.name] for s in program.steps
        }
        results = {program.storage(v) for v in program.outputs}
        self.ends = [n for n in self.order if results & self.writes[n] or not self.ahead(n)]

    def mirrored(self):
        """The names of the steps that are mirrored."""
        chosen = {}
        work = list(self.ends)
        while work:
            head = work.pop(0)
            if head in chosen:
                continue
            subgraph = self.closed(head)
            sources = {s for n in subgraph for s in self.sources(n)}
            work += sorted(sources - self.may, key=self.order.get)
            chosen.update(dict.fromkeys(subgraph - self.may, False))
            while group := self.leaving(subgraph, chosen):
                chosen.update(dict.fromkeys(group, False))
            for name in subgraph:
                chosen.setdefault(name, True)
        return {name for name, yes in chosen.items() if yes}

    def closed(self, head):
        subgraph = set()
        self.back(head, subgraph)
        while True:
            values = {r for n in subgraph for r in self.data[n]}
            other = [n for n in self.order if self.needs[n] & values and n not in subgraph]
            if not other:
                return subgraph
            for reached in self.cotangents_of(other[0]):
                self.back(reached, subgraph)

    def leaving(self, subgraph, chosen):
        """The first group that frees as much as it takes."""
        open_ = {n for n in subgraph & self.may if n not in chosen}
        frontier = {
            n
            for n in open_
            if all(s not in self.may or chosen.get(s) is False for s in self.sources(n))
        }
        groups = (self.sharing(n, frontier) for n in sorted(frontier, key=self.order.get))
        return next((g for g in groups if self.frees(g, frontier)), None)

    def sharing(self, first, frontier):
        group = {first}
        while more := {n for n in frontier - group for g in group if self.needs[n] & self.data[g]}:
            group |= more
        return group

    def frees(self, group, frontier):
        read = set().union(*self.needs.values())
        outside = {r for n in self.needs if n not in frontier for r in self.needs[n]}
        taken = {v for n in group for v in self.writes[n] if v in read}
        inputs = {r for n in group for r in self.data[n]}
        return self.bytes(inputs - outside) >= self.bytes(taken | (inputs & outside))

    def back(self, head, subgraph):
        subgraph.add(head)
        for source in self.sources(head) & self.may:
            self.back(source, subgraph)

    def cotangents_of(self, name):
        if name not in self.may or name in self.ends:
            return {name}
        return {h for t in self.ahead(name) for h in self.cotangents_of(t)}

    def sources(self, name):
        return {self.writer[r] for r in self.data[name] if r in self.writer}

    def ahead(self, name):
        return [t for t in self.order if self.data[t] & self.writes[name]]

    def bytes(self, values):
        return sum(self.program.values[v].spec.bytes for v in values)

    def _read(self, step):
        roots = {self.program.storage(v) for v in step.reads}
        return {r for r in roots if self.program.values[r].kind not in ("constant", "host")}

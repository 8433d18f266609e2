"""A schedule written into a model: nodes in planned order, further runs of a node as its clones.

A clone is called as its original plus a suffix, has the stage `recompute`, and `gradtool.source`
names the original; placement on devices is kept.  Nodes that are no step of the schedule (views,
what is known before a run) follow the values that they read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from gradtool import io
from gradtool.emit.builder import Builder
from gradtool.emit.clones import clone
from gradtool.graph import walk
from gradtool.graph.composites import DOMAIN
from gradtool.graph.devices import place_like
from gradtool.graph.metadata import GROUP, MIRROR, SOURCE, STAGE
from gradtool.graph.names import Names
from gradtool.graph.prune import detach, prune
from gradtool.graph.reads import reads
from gradtool.graph.training_info import record
from gradtool.operators.kernel_sets import LIBRARY, Kernels
from gradtool.ops import kernels
from gradtool.ops.composites.calls import expand
from gradtool.ops.control.gradient_bodies import replace_reads
from gradtool.planning.schedule import Schedule
from gradtool.program import Program


def prepared(model: ir.Model) -> ir.Model:
    """A copy of a model with the nodes of a schedule, each with a name of its own."""
    meta, model = model.meta, model.clone()
    model.meta.update(meta)
    expand(model, lambda op: kernels.find(DOMAIN, op, 1) is not None)
    names, taken = Names.of(model), set[str]()
    for node in walk.nodes(model.graph):
        if not node.name or node.name in taken:
            node.name = names.fresh(node.name or node.op_type)
        taken.add(node.name)
    return model


def apply(model: ir.Model, program: Program, schedule: Schedule) -> int:
    """Put the nodes of a prepared model into the order of a schedule of its program, in place.

    `program` is what `flatten` makes of the model, perhaps with sizes given to it.  Returns how
    many clones were made.

    Raises:
        ValueError: the program is not that of the model.
    """
    return _Rewriter(model, program).run(schedule)


class _Rewriter:
    """The written nodes so far, and by value of the old graph its latest instance."""

    def __init__(self, model: ir.Model, program: Program) -> None:
        self.op = Builder(model)
        self.graph = model.graph
        self.nodes = {node.name: node for node in model.graph}
        self.program = program
        self.steps = {step.name for step in program.steps}
        unknown = self.steps - self.nodes.keys()
        if unknown:
            raise ValueError(f"the model has no node {min(unknown)!r}")
        self.views = {d.name for d in program.values if d.view is not None}
        by_column = {d.name for d in program.values if d.by_column}
        made = (v for node in model.graph for v in node.outputs)
        self.turned = {v: v.uses() for v in made if v.name in by_column}
        self.latest: dict[ir.Value, ir.Value] = {}
        self.original: dict[ir.Value, ir.Value] = {}
        self.suffix: dict[ir.Value, str] = {}
        self.laid: dict[tuple[ir.Node, tuple[ir.Value | None, ...]], ir.Node] = {}
        self.waiting: dict[ir.Node, list[ir.Node]] = {}
        self.missing: dict[ir.Node, int] = {}
        self.live_out = self._pinned()
        self.written: list[ir.Node] = []
        self.used: set[ir.Node] = set()
        self.clones = 0

    def run(self, schedule: Schedule) -> int:
        """Write the whole schedule; returns how many clones were made."""
        before = list(self.graph)
        known = [n for n in before if n.name not in self.steps and not self._is_view(n)]
        for node in known:
            self._wait(node)
        for node in [n for n in known if not self.missing[n]]:
            self._write_ready(node)
        for number, suffix in zip(schedule.order, schedule.suffixes, strict=True):
            node = self.nodes[self.program.steps[number].name]
            if suffix or node not in self.used:
                self._write(node, suffix)
                self._turn(node)
            self._release(node)
        for value in self.graph.outputs:
            self._resolve(value)
        self.graph.remove(before)
        for node in before:
            if node not in self.used:
                detach(node)
        self.graph.extend(self.written)
        prune(self.op.model)
        return self.clones

    def _pinned(self) -> set[str]:
        """The names of values that are computed once, because they stay to the end anyway."""
        program = self.program
        return {program.values[program.storage(v)].name for v in program.outputs}

    def _is_view(self, node: ir.Node) -> bool:
        """Whether a node that is no step only lays a value out again."""
        return any(v.name in self.views for v in node.outputs)

    def _wait(self, node: ir.Node) -> None:
        """Note the nodes that must be written before one known before a run."""
        makers = dict.fromkeys(m for v in reads(node) for m in self._makers(v))
        self.missing[node] = len(makers)
        for maker in makers:
            self.waiting.setdefault(maker, []).append(node)

    def _makers(self, value: ir.Value) -> Iterator[ir.Node]:
        """The nodes, other than views, that a value comes from at once."""
        node = value.producer()
        if node is None or node.graph is not self.graph:
            return
        if not self._is_view(node):
            yield node
            return
        for each in reads(node):
            yield from self._makers(each)

    def _turn(self, node: ir.Node) -> None:
        """Write the transpose of what a node writes by column: other runtimes hold that till then.

        Ours has it as a view, for which a node that reads it would be early enough.
        """
        for value in node.outputs:
            for use in self.turned.get(value, ()):
                self._resolve(use.node.outputs[0])

    def _release(self, node: ir.Node) -> None:
        """Write the nodes that waited for one written now for the first time."""
        for reader in self.waiting.pop(node, ()):
            self.missing[reader] -= 1
            if not self.missing[reader]:
                self._write_ready(reader)

    def _write_ready(self, node: ir.Node) -> None:
        if node not in self.used:
            self._write(node, "")
        self._release(node)

    def _unready(self, value: ir.Value) -> ir.Value:
        """Nodes known before a run with operands written later: its shape, say.

        It is written as a constant, or as arithmetic on the sizes of inputs; else what it is
        computed from moves forward.
        """
        node = value.producer()
        assert node is not None  # noqa: S101 - initializers and inputs are always ready
        if value.const_value is not None:
            self.latest[value] = self.op.constant(io.array(value.const_value))
        elif (dims := self._sizes_of_inputs(node)) is not None:
            before = len(self.op.emitted)
            prefix = node.name or node.op_type
            given = node.metadata_props.get(STAGE, "forward"), node.metadata_props.get(SOURCE, "")
            with self.op.at(None, stage=given[0], source=given[1], prefix=prefix):
                self.latest[value] = self.op.sizes(dims)
            made = self.op.emitted[before:]
            self.graph.remove(made)
            self.written += made
        else:
            self._write(node, "")
        return self.latest[value]

    def _sizes_of_inputs(self, node: ir.Node) -> list[int | ir.SymbolicDim] | None:
        """The result of a Shape whose sizes all follow from the graph's inputs."""
        of = node.inputs[0] if node.op_type == "Shape" and not node.domain else None
        if of is None or of.shape is None:
            return None
        ends = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(of.shape))
        dims = list(of.shape)[slice(*ends)]
        known = {str(d) for v in self.graph.inputs for d in v.shape or ()}
        symbols = [_symbols(dim) for dim in dims]
        return dims if all(s is not None and s <= known for s in symbols) else None

    def _resolve(self, value: ir.Value) -> ir.Value:
        """The instance of a value that a node written now reads.

        A node that was written before, and runs again, reads an instance already.
        """
        value = self.original.get(value, value)
        node = value.producer()
        if node is None or node.graph is not self.graph:
            return value
        if node.name in self.steps or not self._is_view(node):
            return self.latest[value] if value in self.latest else self._unready(value)
        inputs = tuple(None if v is None else self._resolve(v) for v in node.inputs)
        made = self.laid.get((node, inputs))
        if made is None:
            base = next(v for v in inputs if v is not None)
            suffix = self.suffix.get(base, "")
            again = node in self.used or (suffix and node.metadata_props.get(STAGE) == "forward")
            made = self.laid[node, inputs] = self._write(node, suffix if again else "")
            for output in made.outputs:
                self.suffix[output] = suffix
        return made.outputs[value.index() or 0]

    def _write(self, node: ir.Node, suffix: str) -> ir.Node:
        """Write a node or a clone of it, reading the latest instances."""
        known = {v: new for v in dict.fromkeys(reads(node)) if (new := self._resolve(v)) is not v}
        made = self._clone(node, suffix) if suffix else node
        replace_reads(made, known)
        self.used.add(node)
        self.written.append(made)
        for old, new in zip(node.outputs, made.outputs, strict=True):
            if suffix:
                self.original[new] = old
            if old.name not in self.live_out or old not in self.latest:
                self.latest[old] = new
                self.suffix[new] = suffix
        if suffix:
            place_like(made, node, known | dict(zip(node.outputs, made.outputs, strict=True)))
        return made

    def _clone(self, node: ir.Node, suffix: str) -> ir.Node:
        self.clones += 1
        metadata = {**node.metadata_props, STAGE: "recompute", SOURCE: node.name or ""}
        if GROUP in metadata:
            metadata[GROUP] += suffix
        return clone(node, self.op.names, suffix, metadata)


def _symbols(dim: int | ir.SymbolicDim) -> frozenset[str] | None:
    """The symbols that a size is computed from; None if it has no name."""
    if isinstance(dim, int):
        return frozenset()
    return None if dim.value is None else dim.free_symbols()


def mark(model: ir.Model, decisions: Mapping[str, bool]) -> None:
    """Write the mirror decision on each node that one was taken of, by name."""
    for node in model.graph:
        decision = decisions.get(node.name or "")
        if decision is not None:
            node.metadata_props[MIRROR] = str(int(decision))


def group(model: ir.Model, program: Program, kernels: Kernels) -> None:
    """Write on each node the name of the one that it runs with, and whose kernels join them."""
    joined = program.steps if kernels in LIBRARY else ()
    groups = {step.name: step.group for step in joined}
    record(model, kernels=kernels if groups else None)
    for node in model.graph:
        node.metadata_props.pop(GROUP, None)
        if name := groups.get(node.name or ""):
            node.metadata_props[GROUP] = name

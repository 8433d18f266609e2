"""One stage of a training graph: all its turns of a step as one graph, with its messages.

    receive · forward of micro-batch 0 · send        as often as there are micro-batches, in the
    receive · backward of micro-batch 0 · send       order of the schedule

Residuals of a forward turn live from one to the other, so that the plan of the graph has the memory
of all micro-batches in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.emit.clones import clone
from gradtool.graph import walk
from gradtool.graph.metadata import SOURCE
from gradtool.graph.names import Names
from gradtool.graph.training_info import TrainingInfo, record
from gradtool.graph.typed import as_tensor
from gradtool.passes.pipeline_cut import Cut, is_known

Phase = Literal["forward", "backward"]
Turn = tuple[Phase, int]
SENT = "stage_sent"  # the output that says so


@dataclass
class _Stage:
    """The graph of one stage, as it grows turn by turn."""

    cut: Cut
    own: int
    op: Builder
    values: list[dict[ir.Value, ir.Value]]
    shared: dict[ir.Value, ir.Value] = field(default_factory=dict)
    mails: dict[tuple[int, int], ir.Value] = field(default_factory=dict)
    given: list[ir.Value] = field(default_factory=list)
    state: dict[str, ir.Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.cut.model.graph
        mine = [node for node in graph if self.cut.stage[node] == self.own and not is_known(node)]
        late = self.cut.late
        self._nodes = {each: [n for n in mine if (n in late) == each] for each in (False, True)}
        self._outer = {*graph.inputs, *graph.initializers.values()}
        self._outer.update(value for node in graph for value in node.outputs)
        self._of_next = TrainingInfo.of(self.cut.model).of_next

    def begin(self) -> None:
        """Take the values that come once a step, and give them on."""
        below, above = self.cut.once[self.own - 1 : self.own], self.cut.once[self.own :][:1]
        with self.op.at(None, stage="forward", source="", prefix="once"):
            for slot, value in enumerate(below[0] if self.own and below else ()):
                self.shared[value] = self._received(value, -1, 2 * slot + 1)
            for slot, value in enumerate(above[0] if above else ()):
                found = as_tensor(self._shared(value))
                self.given.append(self.op.StageGive(found, to=1, slot=2 * slot + 1))

    def turn(self, phase: Phase, number: int) -> None:
        """Append a turn of a micro-batch."""
        late = phase == "backward"
        before, after = (1, -1) if late else (-1, 1)
        lines = self.cut.down if late else self.cut.up
        values = self.values[number]
        with self.op.at(None, stage=phase, source="", prefix=f"{phase}/{number}"):
            for slot, value in enumerate(self._line(lines, before)):
                values[value] = self._received(value, before, 2 * slot)
            leaving = {value: 2 * slot for slot, value in enumerate(self._line(lines, after))}
            for value in [v for v in leaving if v in values]:
                self._send(values[value], after, leaving.pop(value))
            for node in self._nodes[late]:
                self._append(node, number)
                for value in [v for v in node.outputs if v in leaving]:
                    self._send(values[value], after, leaving.pop(value))

    def end(self) -> None:
        """Wait for pending messages."""
        left = [*self.mails.values(), *self.given]
        if left:
            with self.op.at(None, stage="backward", source="", prefix="end"):
                made = self.op.StageSent(*map(as_tensor, left))
            made.name = self.op.names.fresh(SENT)
            self.op.graph.outputs.append(made)

    def _line(self, lines: Sequence[Sequence[ir.Value]], further: int) -> Sequence[ir.Value]:
        """The values over the boundary to the stage `further`, one above or below."""
        boundary = self.own + min(further, 0)
        return lines[boundary] if 0 <= boundary < len(lines) else ()

    def _received(self, value: ir.Value, of: int, slot: int) -> ir.Value:
        assert value.shape is not None and value.dtype is not None  # noqa: PT018, S101 - it has a size
        made: ir.Value = self.op.emit(
            "StageReceive", (), None,
            {"shape": list(value.shape.numpy()), "dtype": int(value.dtype), "of": of, "slot": slot},
            like=value,
        )  # fmt: skip
        return made

    def _send(self, value: ir.Value, to: int, slot: int) -> None:
        before = self.mails.get((to, slot))
        sent = [as_tensor(value), *([] if before is None else [as_tensor(before)])]
        self.mails[to, slot] = self.op.emit(
            "StageSend", sent, None, {"to": to, "slot": slot}, like=value
        )

    def _append(self, node: ir.Node, number: int) -> None:
        """Append a node as it is in a turn of a micro-batch."""
        suffix = f"/{number}"
        metadata = dict(node.metadata_props)
        if metadata.get(SOURCE):
            metadata[SOURCE] += suffix
        made = clone(node, self.op.names, suffix, metadata)
        self.op.graph.append(made)
        for slot, value in enumerate(made.inputs):
            if value is not None:
                made.replace_input_with(slot, self._found(value, number))
        for graph in walk.subgraphs(made):
            self._inside(graph, number)
        for old, new in zip(node.outputs, made.outputs, strict=True):
            new.const_value = old.const_value
            self.values[number][old] = new
            if old.name in self._of_next:
                self.state[self._of_next[old.name]] = new

    def _inside(self, body: ir.Graph, number: int) -> None:
        """Let a body read this turn's copies of outer values."""
        for graph in walk.graphs(body):
            for node in graph:
                for slot, value in enumerate(node.inputs):
                    if value is not None and value in self._outer:
                        node.replace_input_with(slot, self._found(value, number))
            for place, value in enumerate(graph.outputs):
                if value in self._outer:
                    graph.outputs[place] = self._found(value, number)

    def _found(self, value: ir.Value, number: int) -> ir.Value:
        """The copy of a whole graph's value in a turn of a micro-batch."""
        if value in self.values[number]:
            return self.values[number][value]
        if value.name in self.state and value.is_initializer():
            return self.state[value.name]
        if value.is_graph_input() and not value.is_initializer():
            return self._input(value, number)
        return self._shared(value)

    def _shared(self, value: ir.Value) -> ir.Value:
        """A parameter or a known number, the same in all turns."""
        if value not in self.shared:
            made = ir.Value(
                name=value.name, shape=value.shape, type=value.type, const_value=value.const_value
            )
            self.op.root.register_initializer(made)
            self.shared[value] = made
        return self.shared[value]

    def _input(self, value: ir.Value, number: int) -> ir.Value:
        made = ir.Value(
            name=part_name(value.name or "", number), shape=value.shape, type=value.type
        )
        self.op.root.inputs.append(made)
        self.values[number][value] = made
        return made


def part_name(name: str, number: int) -> str:
    """The name of an input or a result of one micro-batch."""
    return f"{name}/{number}"


def stage_graph(
    made: Cut, own: int, turns: Sequence[Turn], results: Sequence[str] = ()
) -> ir.Model:
    """The graph of a stage, whose inputs and `results` have the names of their micro-batch.

    Next values of its state are those after the last one.
    """
    graph = ir.Graph(
        [], [], nodes=[], name=f"{made.model.graph.name}_{own}",
        opset_imports=dict(made.model.graph.opset_imports),
    )  # fmt: skip
    model = ir.Model(graph, ir_version=made.model.ir_version)
    model.meta.update(made.model.meta)
    op = Builder(model, names=Names.of(made.model))
    count = 1 + max(number for _, number in turns)
    stage = _Stage(made, own, op, [{} for _ in range(count)])
    stage.begin()
    for phase, number in turns:
        stage.turn(phase, number)
    _return(stage, model, results)
    stage.end()
    return model


def _return(stage: _Stage, model: ir.Model, results: Sequence[str]) -> None:
    """Let the graph give its results, and the next values of its trained state."""
    graph, whole = model.graph, {v.name: v for n in stage.cut.model.graph for v in n.outputs}
    if stage.own == stage.cut.stages - 1:
        for number in range(len(stage.values)):
            for name in results:
                value = stage._found(whole[name], number)  # noqa: SLF001 - of this file
                value.name = part_name(name, number)
                graph.outputs.append(value)
    graph.outputs.extend(stage.state.values())
    info = TrainingInfo.of(stage.cut.model)
    state = {name: value.name or "" for name, value in stage.state.items()}
    kept = {info.state[name]: new for name, new in state.items()}
    gradients = {name: kept[new] for name, new in info.gradients.items() if new in kept}
    record(model, state=state, gradients=gradients)

"""Names: each is written once, before it is read, in its graph or one around it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx

from gradtool.errors import ModelError
from gradtool.graph.limits import Limits
from gradtool.io import walk


def check(model: onnx.ModelProto, limits: Limits) -> None:
    """Check the graph and the body of every local function.

    Raises:
        ModelError: naming the node and the value.
    """
    _check_graph(model.graph, _Scope("the graph", ChainMap()), limits)
    for function in model.functions:
        scope = _Scope(f"local function {function.name!r}", ChainMap())
        for name in function.input:
            scope.define(name, "input")
        _check_nodes(function.node, scope, limits)
        scope.require(function.output)


@dataclass(frozen=True)
class _Frame:
    """A node list being walked: the node reached, and the number of each value's writer."""

    nodes: Sequence[onnx.NodeProto]
    index: int
    writers: dict[str, int]


@dataclass(frozen=True)
class _Scope:
    """The names readable here with their writers, outer graphs' included, and the way in.

    Without a way in there is no outer graph, and the own names are all.
    """

    where: str
    names: ChainMap[str, str | onnx.NodeProto]
    frames: tuple[_Frame, ...] = ()

    def inside(self, where: str, frame: _Frame) -> _Scope:
        """The scope of a graph in an attribute of the frame's current node."""
        return _Scope(where, self.names.new_child(), (*self.frames, frame))

    def define(self, name: str, writer: str | onnx.NodeProto) -> None:
        """Record a new value. Raises ModelError where the name is taken or empty."""
        if not name or not isinstance(name, str):
            who = _said(writer)
            raise ModelError(f"{self.where}: {who} has no name, or one that is not UTF-8")
        if name in self.names.maps[0] or (self.frames and name in self.names):
            raise ModelError(
                f"{self.where}: {_said(writer)} {name!r} has the name of another value "
                f"({_said(self.names[name])}); every value needs a name of its own"
            )
        self.names.maps[0][name] = writer

    def require(self, outputs: Iterable[str]) -> None:
        """Check that every output is written."""
        for name in outputs:
            if name not in self.names:
                raise ModelError(f"{self.where}: output {name!r} is written by no node")


def _said(writer: str | onnx.NodeProto) -> str:
    return writer if isinstance(writer, str) else f"output of {walk.label(writer)}"


def _check_graph(graph: onnx.GraphProto, scope: _Scope, limits: Limits) -> None:
    if len(scope.frames) > limits.nesting:
        raise ModelError(f"{scope.where}: graphs are nested more than {limits.nesting} deep")
    if graph.sparse_initializer:
        raise ModelError(f"{scope.where}: sparse initializers are not supported")
    if not graph.output:
        raise ModelError(f"{scope.where}: has no output")
    inputs = {value.name for value in graph.input}
    for value in graph.input:
        scope.define(value.name, "input")
    for tensor in graph.initializer:
        if tensor.name in inputs:
            inputs.remove(tensor.name)
        else:
            scope.define(tensor.name, "initializer")
    _check_nodes(graph.node, scope, limits)
    scope.require(value.name for value in graph.output)


def _check_nodes(nodes: Sequence[onnx.NodeProto], scope: _Scope, limits: Limits) -> None:
    writers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    own = scope.names.maps[0]
    for index, node in enumerate(nodes):
        for name in node.input:
            if name and name not in own and not (scope.frames and name in scope.names):
                frames = (*scope.frames, _Frame(nodes, index, writers))
                raise ModelError(f"{scope.where}: {_unreadable(name, frames)}")
        for attribute in node.attribute:
            for graph in walk.attribute_graphs(attribute):
                where = f"{walk.shown(attribute.name)} of {walk.label(node)}"
                frame = _Frame(nodes, index, writers)
                _check_graph(graph, scope.inside(where, frame), limits)
        for name in filter(None, node.output):
            scope.define(name, node)


def _unreadable(name: str, frames: tuple[_Frame, ...]) -> str:
    """Why the innermost node cannot read `name`: undefined, written too late, or a cycle."""
    who = walk.label(frames[-1].nodes[frames[-1].index])
    frame = next((frame for frame in reversed(frames) if name in frame.writers), None)
    if frame is None:
        return f"{who} reads {name!r}, which nothing defines"
    if _needs(frame, frame.writers[name], frame.index):
        return f"{who} is part of a cycle through {name!r}"
    writer = walk.label(frame.nodes[frame.writers[name]])
    return f"{who} reads {name!r} before {writer} writes it; sort the nodes topologically"


def _needs(frame: _Frame, start: int, goal: int) -> bool:
    """Whether node `start` needs a value of node `goal`, directly or through others."""
    seen, pending = {start}, [start]
    while pending:
        current = pending.pop()
        if current == goal:
            return True
        for inner in walk.nodes([frame.nodes[current]]):
            for name in inner.input:
                writer = frame.writers.get(name)
                if writer is not None and writer not in seen:
                    seen.add(writer)
                    pending.append(writer)
    return False

"""Lifting of a file's weights: initializers and Constant nodes, of every graph and function.

Loading makes initializers of the main graph of them all, so that nothing else has to know.  Each
goes by the name of its value, or by one made of it where the file has another value so called; the
names follow from the file alone, and lead back to the place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir

from gradtool.graph.metadata import LITERAL, PREFIX
from gradtool.io import literals, walk

Body = onnx.GraphProto | onnx.FunctionProto
Key = tuple[str, str, str]  # of a function: domain, name, overload
TRACER = "pytorch"  # its exporters make initializers of all parameters, Constants of literals
# Names of TorchScript's Constants, which stay when a quantiser or an optimizer writes the file.
TRACED = re.compile(r"/(?:.*/)?Constant(?:_\d+)?_output_0")
_READ = re.compile(r"onnx::\w+_\d+")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file, an initializer or a Constant; `name` is its own in the whole model."""

    name: str
    held: onnx.TensorProto | onnx.NodeProto

    @property
    def local(self) -> str:
        """Its name among the nodes beside it."""
        return _local(self.held)

    def tensor(self) -> onnx.TensorProto:
        """Its content, dense."""
        if isinstance(self.held, onnx.TensorProto):
            return self.held
        return literals.tensor(self.held.attribute[0])

    def put(self, tensor: onnx.TensorProto) -> None:
        """Store other numbers, in the same form."""
        if isinstance(self.held, onnx.TensorProto):
            literals.fill(self.held, tensor)
        else:
            literals.put(self.held.attribute[0], tensor)


@dataclass(frozen=True, eq=False)
class Scope:
    """A graph or a body, its function, if there is one, and its tensors."""

    body: Body
    function: onnx.FunctionProto | None
    tensors: tuple[StoredTensor, ...] = ()


def scopes(model: onnx.ModelProto) -> list[Scope]:
    """Every graph and function with its tensors, outer ones first, the main graph before all."""
    found = [Scope(body, None) for body in walk.graphs(model.graph)]
    for function in model.functions:
        nested = (g for node in function.node for s in walk.subgraphs(node) for g in walk.graphs(s))
        found += [Scope(body, function) for body in (function, *nested)]
    held = [list(_movable(scope.body, main=n == 0)) for n, scope in enumerate(found)]
    names = _Names(zip(found, held, strict=True))
    return [
        Scope(
            scope.body, scope.function, tuple(StoredTensor(names.of(_local(t)), t) for t in tensors)
        )
        for scope, tensors in zip(found, held, strict=True)
    ]


def stored_tensors(model: onnx.ModelProto) -> dict[str, StoredTensor]:
    """Every tensor of a model by its own name."""
    return {each.name: each for scope in scopes(model) for each in scope.tensors}


def lift(model: onnx.ModelProto, keep: Callable[[str, str], bool]) -> None:
    """Make initializers of the main graph of all tensors, in place.

    A function is given its tensors by its calls; where one is to be kept as it is, all are.
    """
    found = scopes(model)
    if any(keep(function.domain, function.name) for function in model.functions):
        found = [scope for scope in found if scope.function is None]
    main, *rest = found
    if not any(scope.tensors for scope in rest) and not any(map(_is_constant, main.tensors)):
        return
    names = _Names((scope, ()) for scope in found)
    names.take(each.name for scope in found for each in scope.tensors)
    traced = model.producer_name == TRACER
    lifted: dict[str, onnx.TensorProto] = {}
    notes: dict[str, list[onnx.StringStringEntryProto]] = {}
    given: dict[Key, list[str]] = {}
    for scope in (*reversed(rest), main):  # inner ones first: outer ones copy their nodes
        stored = [each for each in scope.tensors if scope is not main or _is_constant(each)]
        noted = {v.name: list(v.metadata_props) for v in scope.body.value_info}
        for each in stored:
            tensor = lifted[each.name] = onnx.TensorProto()
            tensor.CopyFrom(each.tensor())
            tensor.name = each.name
            told = traced or any(form.fullmatch(each.local) for form in (TRACED, _READ))
            plain = _is_constant(each) and (told or math.prod(tensor.dims) == 1)
            literal = [onnx.StringStringEntryProto(key=LITERAL, value="1")] if plain else []
            notes[each.name] = [*noted.get(each.local, []), *literal]
            if scope.function is not None:
                given.setdefault(_key(scope.function), []).append(each.name)
        if scope is main:
            of_functions = {name for each in given.values() for name in each}
            for name in of_functions - _give(model, given):  # of functions that nothing calls
                del lifted[name]
        _take_out(scope.body, stored, names, is_main=scope is main)
    lifted = {h.name: lifted[h.name] for s in found for h in s.tensors if h.name in lifted}
    _note(model.graph, lifted, notes)
    model.graph.initializer.extend(lifted.values())
    model.ir_version = max(model.ir_version, 4)  # before, initializers had to be inputs


def _is_constant(each: StoredTensor) -> bool:
    return isinstance(each.held, onnx.NodeProto)


def _local(held: onnx.TensorProto | onnx.NodeProto) -> str:
    return held.name if isinstance(held, onnx.TensorProto) else held.output[0]


def _movable(body: Body, *, main: bool) -> Iterator[onnx.TensorProto | onnx.NodeProto]:
    """The tensors of a body to lift: its floats; of the main graph all.

    Integers and truth values of a body are its own sizes, counts and conditions.
    """
    if isinstance(body, onnx.GraphProto):
        inputs = {value.name for value in body.input}
        for tensor in body.initializer:
            if main or (_is_float(tensor.data_type) and tensor.name not in inputs):
                yield tensor
    for node in body.node:
        if walk.domain_of(node) or node.op_type != "Constant" or not any(node.output):
            continue
        kind = literals.element_type(node)
        ours = any(entry.key.startswith(PREFIX) for entry in node.metadata_props)
        if kind is not None and not ours and (main or _is_float(kind)):
            yield node


def _is_float(kind: int) -> bool:
    return kind in set(ir.DataType) and ir.DataType(kind).is_floating_point()


class _Names:
    """Names free in a whole model."""

    def __init__(self, found: Iterable[tuple[Scope, Sequence[Any]]]) -> None:
        self._others: set[str] = set()  # of tensors that stay
        self._taken: set[str] = set()
        for scope, held in found:
            defined = set(_defined(scope.body))
            self._taken |= defined
            self._others |= defined - {_local(each) for each in held}
        self._used: set[str] = set()

    def of(self, hint: str) -> str:
        """`hint` itself if it is free, else `hint_1` and so on."""
        if hint not in self._others and hint not in self._used:
            self._used.add(hint)
            return hint
        return self.free(hint)

    def take(self, names: Iterable[str]) -> None:
        """Note given names."""
        self._taken.update(names)

    def free(self, hint: str) -> str:
        """The first of `hint_1`, `hint_2` and so on not in the model."""
        number = 1
        while (name := f"{hint}_{number}") in self._taken:
            number += 1
        self._taken.add(name)
        return name


def _defined(body: Body) -> Iterator[str]:
    """The names defined by a body itself."""
    if isinstance(body, onnx.FunctionProto):
        yield from body.input
    else:
        yield from (value.name for value in body.input)
        yield from (tensor.name for tensor in body.initializer)
    for node in body.node:
        yield from filter(None, node.output)


def _note(
    graph: onnx.GraphProto,
    lifted: Mapping[str, onnx.TensorProto],
    notes: Mapping[str, Sequence[onnx.StringStringEntryProto]],
) -> None:
    """Keep an exporter's notes on values, and marks of lone numbers of Constant nodes."""
    there = {value.name: value for value in graph.value_info}
    for name, tensor in lifted.items():
        if not notes[name]:
            continue
        kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        value = there.get(name) or graph.value_info.add(name=name, type=kind)
        del value.metadata_props[:]
        value.metadata_props.extend(notes[name])


# ------------------------------------------------------------------------------------- bodies


def _take_out(body: Body, stored: Sequence[StoredTensor], names: _Names, *, is_main: bool) -> None:
    """Remove tensors from a body, whose nodes read them by the names they have in the model."""
    gone = {each.local: each.name for each in stored}
    if not gone:
        return
    nodes = [n for n in body.node if n.op_type != "Constant" or not gone.keys() & set(n.output)]
    _replace(body.node, nodes)
    _rename(body.node, {local: name for local, name in gone.items() if local != name})
    if isinstance(body, onnx.FunctionProto):
        body.output[:] = [gone.get(name, name) for name in body.output]
        return
    if not is_main:
        _replace(body.initializer, [t for t in body.initializer if t.name not in gone])
        _replace(body.value_info, [v for v in body.value_info if v.name not in gone])
    for output in body.output:
        name = gone.get(output.name)
        if name is None or (is_main and name == output.name):
            continue
        if not is_main:
            output.name = names.free(output.name)
        body.node.add(op_type="Identity", input=[name], output=[output.name])


def _replace(field: Any, kept: Sequence[Any]) -> None:
    del field[:]
    field.extend(kept)


def _rename(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """Rename reads of nodes, those of bodies too unless these have such a value."""
    if not names:
        return
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        for graph in walk.subgraphs(node):
            own = set(_defined(graph))
            _rename(graph.node, {old: new for old, new in names.items() if old not in own})


# ---------------------------------------------------------------------------------- functions


def _key(function: onnx.FunctionProto) -> Key:
    return walk.domain_of(function), function.name, function.overload


def _called(node: onnx.NodeProto) -> Key:
    return walk.domain_of(node), node.op_type, node.overload


def _give(model: onnx.ModelProto, given: dict[Key, list[str]]) -> set[str]:
    """Let functions take tensors, of their own and of their callees, and calls give them.

    Returns the names of those that are given by calls outside of functions.
    """
    functions = {_key(function): function for function in model.functions}
    formals = {key: len(function.input) for key, function in functions.items()}
    for key in _callees_first(functions):
        mine = given.get(key, [])
        for node in walk.nodes(functions[key].node):
            mine += _add_inputs(node, formals, given)
        given[key] = list(dict.fromkeys(mine))
        functions[key].input.extend(given[key])
    calls = list(walk.nodes(model.graph.node)) if functions else []
    return {name for node in calls for name in _add_inputs(node, formals, given)}


def _add_inputs(
    node: onnx.NodeProto, formals: Mapping[Key, int], given: Mapping[Key, list[str]]
) -> list[str]:
    """The tensors that a node gives to the function it calls, if it calls one."""
    key = _called(node)
    more = given.get(key, []) if key in formals else []
    if more:
        node.input.extend([""] * (formals[key] - len(node.input)))
        node.input.extend(more)
    return more


def _callees_first(functions: Mapping[Key, onnx.FunctionProto]) -> list[Key]:
    """Functions in an order with each after all its callees."""
    done: dict[Key, None] = {}
    waiting = list(functions)
    while waiting:
        key = waiting[-1]
        calls = (_called(node) for node in walk.nodes(functions[key].node))
        missing = [each for each in calls if each in functions and each not in done]
        if not missing:
            done[waiting.pop()] = None
        waiting += missing
    return list(done)

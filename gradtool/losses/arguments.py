"""Values of a graph that a loss of the user's takes by the names of its parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError, UserCodeError
from gradtool.losses.kinds import Kind
from gradtool.plugins import parameters_of, place_of
from gradtool.text.words import some

_TYPED = re.compile(r"(\w+)\[([^\]]*)\]")
FORMS = "classes:OUTPUT, like:OUTPUT, or a type and sizes as in int64[N, 4]"


@dataclass(frozen=True)
class Argument:
    """A value of a formula, or its declared labels called `name` of a `form`."""

    name: str
    value: ir.Value | None
    form: str = ""

    def given(self, op: Builder, asked: str) -> ir.Value:
        """The value, or the input of labels, made if the model has none.

        Raises:
            UsageError: the form is none, or names no output.
        """
        if self.value is not None:
            return self.value
        there = next((v for v in op.graph.inputs if v.name == self.name), None)
        if there is not None:
            return there
        sizes, dtype = self._declared(op.graph, asked)
        made = ir.Value(name=self.name, shape=ir.Shape(sizes), type=ir.TensorType(dtype))
        op.graph.inputs.append(made)
        return made

    def _declared(self, graph: ir.Graph, asked: str) -> tuple[list[Any], ir.DataType]:
        kind, _, of = self.form.partition(":")
        outputs = {v.name: v for v in graph.outputs}
        if kind in ("classes", "like") and of in outputs:
            sizes = list(outputs[of].shape or ())
            if kind == "like":
                return sizes, outputs[of].dtype or ir.DataType.FLOAT
            axis = 1 if len(sizes) > 3 else len(sizes) - 1
            return sizes[:axis] + sizes[axis + 1 :], ir.DataType.INT64
        typed = _TYPED.fullmatch(self.form)
        if typed and typed[1].upper() in ir.DataType.__members__:
            parts = [each.strip() for each in typed[2].split(",") if each.strip()]
            return [int(p) if p.isdigit() else p for p in parts], ir.DataType[typed[1].upper()]
        raise UsageError(
            f"--loss {asked}: labels {self.name!r} are declared as {self.form!r}; write {FORMS}; "
            f"outputs are {some(map(str, outputs))}"
        )


def by_name(graph: ir.Graph, kind: Kind, asked: str) -> tuple[Argument, ...]:
    """Parameter names of a user's formula; nothing where none is an output.

    Of two parameters, an output and one that is called as nothing, the second are labels.

    Raises:
        UserCodeError: a parameter is called as nothing there is.
    """
    if kind.is_own:
        return ()
    parameters = list(parameters_of(kind.formula).values())[1:]
    takes = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    outputs = {_identifier(v): v for v in graph.outputs}
    known = {_identifier(v): v for v in graph.inputs if not v.is_initializer()} | outputs
    found = [
        Argument(p.name, known.get(p.name), kind.declared.get(p.name, ""))
        for p in takes
        if p.name in known or p.name in kind.declared or p.default is p.empty
    ]
    unknown = [a.name for a in found if a.value is None and not a.form]
    is_told = bool(kind.declared) or len([p for p in takes if p.default is p.empty]) > 2
    if not is_told and (unknown or not any(p.name in outputs for p in takes)):
        return ()
    if unknown or not any(a.name in outputs for a in found):
        inputs = [name for name in known if name not in outputs]
        raise UserCodeError(
            f"--loss {asked}: takes {', '.join(unknown or [p.name for p in takes])}, and the model "
            f"has no such output or input; outputs are {some(outputs)}, inputs {some(inputs)}; "
            f"labels are declared by @gradtool.loss(NAME, labels={{PARAMETER: FORM}})"
            f"{place_of(kind.formula)}"
        )
    return tuple(found)


def called_output(graph: ir.Graph, kind: Kind) -> str:
    """The output that the first parameter of a formula of the user's is called as, if any."""
    names = list(parameters_of(kind.formula))[1:2]
    found = [v.name or "" for v in graph.outputs if _identifier(v) in names]
    return found[0] if found and not kind.is_own else ""


def _identifier(value: ir.Value) -> str:
    """The name of a value as a parameter has it: `_` in place of what no name of Python has."""
    return re.sub(r"\W", "_", value.name or "")

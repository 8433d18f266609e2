"""Terms of a loss, from `--loss`: `[WEIGHT*]NAME` or `[WEIGHT*]KIND[:OUTPUT][@SETTINGS]`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError, UserCodeError
from gradtool.graph.predicates import is_float
from gradtool.losses.kinds import Kind, kind_of, kinds
from gradtool.losses.settings import Settings, settings, split
from gradtool.plugins import code_in, function_at, parameters_of, place_of
from gradtool.text.words import some, suggest

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


Wanted = str | Callable[..., Any]

# What a name stands for: a loss, the output it is of by default if there is one, and settings.  A
# decoder's score is held against the next label.
ALIASES = {"causal": ("ce", "logits", "shift=1")}


@dataclass(frozen=True)
class Term:
    """`weight` times a loss of `output`, or times `output` itself if there is no kind.

    `called` is the output that people know it by, `asked` how they named the loss.  Where there are
    `arguments`, the formula takes these in place of `output` and its labels.
    """

    weight: float
    kind: Kind | None
    output: ir.Value
    called: str
    asked: str
    settings: Settings = field(default_factory=Settings)
    arguments: tuple[Argument, ...] = ()

    @property
    def said(self) -> str:
        """The loss in words, with its weight."""
        of = ", ".join(repr(a.name) for a in self.arguments) or repr(self.called)
        what = f"{self.kind.said} of {of}" if self.kind else f"{self.called!r}"
        return what if self.weight == 1 else f"{self.weight:g}·{what}"


_WEIGHTED = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\*(.+)", re.DOTALL)


def term(graph: ir.Graph, wanted: Wanted) -> Term:
    """One loss of the command line. An exact name of a value wins over any other reading.

    Raises:
        UsageError: there is no such value, loss or setting.
    """
    if not isinstance(wanted, str):
        kind = kind_of(wanted)
        return _term(graph, 1.0, kind, "", kind.name, kind.name)
    weight, rest = 1.0, wanted
    weighted = _WEIGHTED.fullmatch(wanted)
    if weighted and _value_named(graph, wanted) is None:
        weight, rest = float(weighted[1]), weighted[2]
        if not math.isfinite(weight):
            raise UsageError(f"--loss {wanted}: the weight is not finite")
    named = _value_named(graph, rest)
    if named is not None:
        return Term(weight, None, named, named.name or "", wanted)
    given = None
    if _value_named(graph, rest.partition(":")[2]) is None:
        rest, given = split(rest)
    rest, given = _plainly(graph, rest, given)
    kind, name = _kind(graph, rest, wanted)
    found = _term(graph, weight, kind, name, rest.partition(":")[0], wanted)
    if given is None:
        return found
    return replace(found, settings=settings(given, kind, found.output, wanted))


def _plainly(graph: ir.Graph, text: str, given: str | None) -> tuple[str, str | None]:
    """A loss and its settings, where it is one of another with a setting of its own."""
    name, _, output = text.partition(":")
    if name not in ALIASES or name in kinds():
        return text, given
    of, usual, own = ALIASES[name]
    output = output or (usual if any(v.name == usual for v in graph.outputs) else "")
    return f"{of}:{output}" if output else of, own if given is None else f"{own},{given}"


def _term(graph: ir.Graph, weight: float, kind: Kind, name: str, called: str, wanted: str) -> Term:
    """A loss of the named outputs, or of those its parameters are called by."""
    if kind.outputs > 1:
        names = name.split(",")
        if len(names) != kind.outputs or not name:
            raise UsageError(
                f"--loss {wanted}: takes {kind.outputs} outputs, as in {called}:a,b; outputs are "
                f"{', '.join(v.name or '' for v in graph.outputs)}"
            )
        values = [_output(graph, each, called) for each in names]
        given = tuple(Argument(v.name or "", v) for v in values)
        return Term(weight, kind, values[0], values[0].name or "", wanted, arguments=given)
    found = () if name else by_name(graph, kind, wanted)
    if found:
        output = next(a.value for a in found if a.value is not None and a.value.is_graph_output())
        return Term(weight, kind, output, output.name or "", wanted, arguments=found)
    output = _output(graph, name or called_output(graph, kind), called)
    return Term(weight, kind, output, output.name or "", wanted)


def code_of(wanted: str) -> str | None:
    """The `pkg.mod:function` that a loss in words may import; None where it names none.

    Only a value of the model that has the whole name is not told apart.
    """
    weighted = _WEIGHTED.fullmatch(wanted)
    name, _, rest = (weighted[2] if weighted else wanted).partition(":")
    path = f"{name}:{re.split('[:@]', rest, maxsplit=1)[0]}"
    return None if code_in(path) is None or name in {*kinds(), *ALIASES} else path


def _kind(graph: ir.Graph, text: str, wanted: str) -> tuple[Kind, str]:
    """The loss that `KIND[:OUTPUT]` or `pkg.mod:function[:OUTPUT]` names, and the output."""
    name, _, output = text.partition(":")
    if name in kinds():
        return kinds()[name], output
    function, _, output = output.partition(":")
    try:
        formula = function_at(f"{name}:{function}")
    except UsageError as error:
        raise UsageError(f"--loss {wanted}: {error}") from error
    if formula is None:
        names = [*kinds(), *ALIASES, *(v.name or "" for v in graph.outputs)]
        raise UsageError(
            f"--loss {wanted}: neither a value of the model nor a loss "
            f"({', '.join((*kinds(), *ALIASES))}){suggest(name, names)}"
        )
    return kind_of(formula), output


def _value_named(graph: ir.Graph, name: str) -> ir.Value | None:
    found = [v for v in graph.outputs if v.name == name]
    found += [v for node in graph for v in node.outputs if v.name == name]
    return found[0] if found else None


def _output(graph: ir.Graph, name: str, kind: str) -> ir.Value:
    floats = [v for v in graph.outputs if is_float(v)]
    if name:
        found = _value_named(graph, name)
        if found is None:
            names = [v.name or "" for v in graph.outputs]
            raise UsageError(
                f"--loss {kind}:{name}: no such value; outputs are {', '.join(names)}"
                f"{suggest(name, names)}"
            )
        return found
    deep = [v for v in floats if len(v.shape or ()) >= 2] or floats
    if not deep:
        raise UsageError(f"--loss {kind}: no output is a float")
    return deep[0]

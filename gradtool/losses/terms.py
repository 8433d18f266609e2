"""Terms of a loss, from `--loss`: `[WEIGHT*]NAME` or `[WEIGHT*]KIND[:OUTPUT][@SETTINGS]`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.predicates import is_float
from gradtool.losses.arguments import Argument, by_name, called_output
from gradtool.losses.kinds import Kind, kind_of, kinds
from gradtool.losses.settings import Settings, settings, split
from gradtool.plugins import code_in, function_at
from gradtool.text.words import suggest

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

"""What `--loss` says of a graph: `[WEIGHT*]NAME` or `[WEIGHT*]KIND[:OUTPUT][@SETTINGS]`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.predicates import is_float
from gradtool.losses.kinds import Kind, kind_of, kinds
from gradtool.losses.settings import Settings, settings, split
from gradtool.plugins import code_in, function_at
from gradtool.text.words import suggest

Wanted = str | Callable[..., Any]


@dataclass(frozen=True)
class Term:
    """`weight` times a loss of `output`, or times `output` itself if there is no kind.

    `called` is the output that people know it by, `asked` how they named the loss.
    """

    weight: float
    kind: Kind | None
    output: ir.Value
    called: str
    asked: str
    settings: Settings = field(default_factory=Settings)

    @property
    def said(self) -> str:
        """The loss in words, with its weight."""
        what = f"{self.kind.said} of {self.called!r}" if self.kind else f"{self.called!r}"
        return what if self.weight == 1 else f"{self.weight:g}·{what}"


_WEIGHTED = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\*(.+)", re.DOTALL)


def term(graph: ir.Graph, wanted: Wanted) -> Term:
    """One loss of the command line. An exact name of a value wins over any other reading.

    Raises:
        UsageError: there is no such value, loss or setting.
    """
    if not isinstance(wanted, str):
        kind = kind_of(wanted)
        output = _output(graph, "", kind.name)
        return Term(1.0, kind, output, output.name or "", kind.name)
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
    kind, name = _kind(graph, rest, wanted)
    output = _output(graph, name, rest.partition(":")[0])
    said = Settings() if given is None else settings(given, kind, output, wanted)
    return Term(weight, kind, output, output.name or "", wanted, said)


def code_of(wanted: str) -> str | None:
    """The `pkg.mod:function` that a loss in words may import; None where it names none.

    Only a value of the model that has the whole name is not told apart.
    """
    weighted = _WEIGHTED.fullmatch(wanted)
    name, _, rest = (weighted[2] if weighted else wanted).partition(":")
    path = f"{name}:{re.split('[:@]', rest, maxsplit=1)[0]}"
    return None if code_in(path) is None or name in kinds() else path


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
        names = [*kinds(), *(v.name or "" for v in graph.outputs)]
        raise UsageError(
            f"--loss {wanted}: neither a value of the model nor a loss "
            f"({', '.join(kinds())}){suggest(name, names)}"
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

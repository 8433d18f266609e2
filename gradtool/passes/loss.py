"""Which number is minimised: an output as it is, a loss appended to one, or a weighted sum."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from gradtool.builder import Builder
from gradtool.errors import UsageError
from gradtool.losses import Kind, Labels, kind_of, kinds
from gradtool.plugins import function_at
from gradtool.text import suggest

Wanted = str | Callable[..., Any]
LabelNames = str | Mapping[str, str]


@dataclass(frozen=True)
class Loss:
    """The loss of a training graph; `value` is None where head gradients take its place.

    `said` tells people how it was chosen; `labels` names its inputs; `loud` asks to warn.
    """

    value: ir.Value | None
    said: str
    labels: tuple[str, ...] = ()
    loud: bool = False


@dataclass(frozen=True)
class _Term:
    """`weight` times a loss of `output`, or times `output` itself if there is no kind."""

    weight: float
    kind: Kind | None
    output: ir.Value

    @property
    def said(self) -> str:
        what = f"{self.kind.said} of {self.output.name!r}" if self.kind else f"{self.output.name!r}"
        return what if self.weight == 1 else f"{self.weight:g}·{what}"


def attach(op: Builder, wanted: Wanted | Sequence[Wanted], labels: LabelNames = "labels") -> Loss:
    """Find or append the loss: `auto`, or the sum of all that are `wanted`.

    Each is the name of a value, `KIND[:OUTPUT]` or `pkg.mod:function[:OUTPUT]`, with `WEIGHT*`
    before it; or a function.  Labels become a graph input: `labels`, or one per output if several
    outputs have some, or what `labels` says for an output.

    Raises:
        UsageError: there is no such output, or it cannot be a loss.
    """
    several = [wanted] if isinstance(wanted, str) or callable(wanted) else list(wanted)
    if several in (["auto"], []):
        return _automatic(op, labels)
    if "auto" in several:
        raise UsageError("--loss auto stands alone; name every loss")
    terms = [_term(op.graph, one) for one in several]
    names = _label_names(terms, labels)
    if len(terms) > 1 or terms[0].weight != 1:
        return _weighted(op, terms, names)
    (term,) = terms
    if term.kind is None:
        return _as_it_is(term.output)
    return _append(op, term.kind, term.output, names[0], term.kind.said)


# --------------------------------------------------------------------------------- choosing


def _automatic(op: Builder, labels: LabelNames) -> Loss:
    floats = [v for v in op.graph.outputs if _is_float(v)]
    if not floats:
        raise UsageError("no output is a float: name a loss with --loss")
    scalars = [v for v in floats if _is_scalar(v)]
    if scalars:
        return Loss(scalars[0], f"the scalar output {scalars[0].name!r} (auto)")
    deep = [v for v in floats if len(v.shape or ()) >= 2]
    if len(deep) == 1:
        scores, stripped = _scores(deep[0])
        if scores is not None:
            ce = kinds()["ce"]
            said = f"{ce.said} (auto, output {deep[0].name!r}"
            said += ", its Softmax left out" if stripped else ""
            (name,) = _label_names([_Term(1, ce, deep[0])], labels)
            return _append(op, ce, scores, name, said, closing=")")
    target = (deep or floats)[0]
    said = f"the mean of output {target.name!r} (auto)"
    made = _append(op, kinds()["mean"], target, "", said)
    return Loss(made.value, made.said, made.labels, loud=True)


_THROUGH = ("Add", "Reshape", "Transpose", "Identity", "Squeeze", "Unsqueeze", "Cast", "Flatten")


def _scores(value: ir.Value) -> tuple[ir.Value | None, bool]:
    """The values that a classifier's softmax is taken of, and whether a Softmax was stripped."""
    node = value.producer()
    stripped = node is not None and node.op_type == "Softmax"
    if stripped and node is not None:
        axis = node.attributes.get_int("axis", -1)
        source = node.inputs[0]
        if source is None or axis % len(value.shape or (1,)) != len(value.shape or (1,)) - 1:
            return None, False
        value, node = source, source.producer()
    top = value
    while node is not None and node.op_type in _THROUGH:
        nearest = [i for i in node.inputs if i is not None and i.producer() is not None]
        node = nearest[0].producer() if nearest else None
    return (top if node is not None and node.op_type in ("Gemm", "MatMul") else None), stripped


_WEIGHTED = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\*(.+)", re.DOTALL)


def _term(graph: ir.Graph, wanted: Wanted) -> _Term:
    """One loss of the command line. An exact name of a value wins over any other reading."""
    if not isinstance(wanted, str):
        kind = kind_of(wanted)
        return _Term(1.0, kind, _output(graph, "", kind.name))
    weight, rest = 1.0, wanted
    weighted = _WEIGHTED.fullmatch(wanted)
    if weighted and _value_named(graph, wanted) is None:
        weight, rest = float(weighted[1]), weighted[2]
        if not math.isfinite(weight):
            raise UsageError(f"--loss {wanted}: the weight is not finite")
    named = _value_named(graph, rest)
    if named is not None:
        return _Term(weight, None, named)
    kind, output = _kind(graph, rest, wanted)
    return _Term(weight, kind, _output(graph, output, rest.partition(":")[0]))


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
            f"({', '.join(kinds())}){suggest(text, names)}"
        )
    return kind_of(formula), output


def _value_named(graph: ir.Graph, name: str) -> ir.Value | None:
    found = [v for v in graph.outputs if v.name == name]
    found += [v for node in graph for v in node.outputs if v.name == name]
    return found[0] if found else None


def _as_it_is(value: ir.Value) -> Loss:
    if not _is_float(value):
        raise UsageError(f"--loss {value.name}: it is not a float")
    if not _is_scalar(value):
        raise UsageError(
            f"--loss {value.name}: it has shape {value.shape}, a loss has one element; "
            f"try --loss mean:{value.name}"
        )
    return Loss(value, f"{value.name!r}")


def _output(graph: ir.Graph, name: str, kind: str) -> ir.Value:
    floats = [v for v in graph.outputs if _is_float(v)]
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


# -------------------------------------------------------------------------------- appending


def _weighted(op: Builder, terms: Sequence[_Term], names: Sequence[str]) -> Loss:
    """`Σ weight · loss`; each loss becomes an output of its own, called after what it is of."""
    parts = [
        _as_it_is(term.output)
        if term.kind is None
        else _append(op, term.kind, term.output, name, term.said, f"loss_{term.output.name}")
        for term, name in zip(terms, names, strict=True)
    ]
    values = [part.value for part in parts if part.value is not None]
    dtype = max((v.dtype for v in values if v.dtype is not None), key=lambda d: d.bitwidth)
    with op.at(None, stage="forward", source="", prefix="loss"), op.arithmetic():
        scaled = [
            value if term.weight == 1 else op.Mul(value, term.weight)
            for term, value in zip(terms, (op.cast(v, dtype) for v in values), strict=True)
        ]
        total = scaled[0]
        for value in scaled[1:]:
            total = op.Add(total, value)
    total.name = op.names.fresh("loss")
    op.graph.outputs.append(total)
    said = " + ".join(
        term.said if term.kind is None else part.said
        for term, part in zip(terms, parts, strict=True)
    )
    labels = dict.fromkeys(name for part in parts for name in part.labels)
    return Loss(total, said, tuple(labels))


def _append(
    op: Builder,
    kind: Kind,
    output: ir.Value,
    labels: str,
    said: str,
    name: str = "loss",
    *,
    closing: str = "",
) -> Loss:
    made: tuple[str, ...] = ()
    with op.at(None, stage="forward", source="", prefix=name), op.arithmetic():
        if kind.labels is not None:
            target = _target(op, output, labels, kind.labels)
            said += f", labels: {_show(target)}"
            made = (target.name or "",)
            value = kind.formula(op, output, target)
        else:
            value = kind.formula(op, output)
    if not isinstance(value, ir.Value) or not _is_float(value) or not _is_scalar(value):
        shape = value.shape if isinstance(value, ir.Value) else type(value).__name__
        raise UsageError(f"--loss {kind.name}: it returned {shape}, a loss is one float")
    value.name = op.names.fresh(name)
    op.graph.outputs.append(value)
    return Loss(value, said + closing, made)


# ----------------------------------------------------------------------------------- labels


def _label_names(terms: Sequence[_Term], labels: LabelNames) -> list[str]:
    """The name of each term's labels: one for all if they are the same, else one per output."""
    given = {} if isinstance(labels, str) else labels
    base = labels if isinstance(labels, str) else labels.get("", "labels")
    _check_names(terms, given)
    taking = {(t.output.name or "", t.kind.labels) for t in terms if t.kind and t.kind.labels}
    outputs = [output for output, _ in taking]
    names = []
    for term in terms:
        output = term.output.name or ""
        name = base if len(taking) == 1 else f"{base}_{output}"
        if term.kind and outputs.count(output) > 1:
            name = f"{name}_{term.kind.labels}"
        names.append(given.get(output, name))
    return names


def _check_names(terms: Sequence[_Term], given: Mapping[str, str]) -> None:
    outputs = [t.output.name or "" for t in terms]
    for output in given:
        if output and output not in outputs:
            raise UsageError(f"--labels {output}=: no loss is of that output; {', '.join(outputs)}")


def _target(op: Builder, output: ir.Value, labels: str, form: Labels) -> ir.Value:
    """The graph input that holds the labels, made if the model has none of that name."""
    shape = list(output.shape or ())
    dtype = ir.DataType.INT64 if form == "classes" else output.dtype
    shape = shape[:-1] if form == "classes" else shape
    for existing in op.graph.inputs:
        if existing.name == labels:
            _check_target(existing, shape, dtype, form)
            return existing
    made = ir.Value(
        name=op.names.fresh(labels),
        shape=ir.Shape(shape),
        type=ir.TensorType(dtype or ir.DataType.FLOAT),
    )
    op.graph.inputs.append(made)
    return made


def _check_target(
    labels: ir.Value, shape: list[Any], dtype: ir.DataType | None, form: Labels
) -> None:
    """An input of the model that serves as labels has to fit; it must not be broadcast."""
    own = list(labels.shape) if labels.shape is not None else []
    if form == "classes":
        fits = labels.dtype in (ir.DataType.INT32, ir.DataType.INT64)
    else:
        fits = labels.dtype == dtype and len(own) == len(shape)
        fits = fits and not any(_differ(a, b) for a, b in zip(own, shape, strict=True))
    if not fits:
        dims = ", ".join(map(str, shape))
        wanted = "integers" if form == "classes" else f"{str(dtype).lower()}[{dims}]"
        raise UsageError(
            f"--labels {labels.name}: the model has an input {_show(labels)}, "
            f"the loss takes {wanted}; choose another name"
        )


def _differ(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _is_scalar(value: ir.Value) -> bool:
    return value.shape is not None and all(d == 1 for d in value.shape)


def _show(value: ir.Value) -> str:
    dims = ", ".join(str(d) for d in value.shape or ())
    return f"{value.name} {str(value.dtype).lower()}[{dims}]"

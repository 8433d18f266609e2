"""The minimised number of a model: an output, an appended loss, or a weighted sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import NotDifferentiable, UsageError, UserCodeError
from gradtool.graph import deciding
from gradtool.graph.predicates import HALVES, is_float, is_scalar
from gradtool.graph.typed import as_tensor
from gradtool.losses import labels as label
from gradtool.losses.choice import Choice, choose
from gradtool.losses.kinds import Kind
from gradtool.losses.labels import LabelNames
from gradtool.losses.settings import class_weights
from gradtool.losses.terms import Term, Wanted, term
from gradtool.plugins import place_of, require_call, user_code

__all__ = ["LabelNames", "Loss", "Wanted", "attach"]


@dataclass(frozen=True)
class Loss:
    """The loss of a training graph; `value` is None where head gradients take its place.

    `said` tells people how it was chosen, and `others` are outputs that may have been meant;
    `labels` names its inputs, `shifts` has by how many places some of them are ahead; `loud` asks
    to warn, and `warnings` are lines for people.
    """

    value: ir.Value | None
    said: str
    labels: tuple[str, ...] = ()
    loud: bool = False
    shifts: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def attach(op: Builder, wanted: Wanted | Sequence[Wanted], labels: LabelNames = "labels") -> Loss:
    """Find or append the loss: `auto`, or the sum of all that are `wanted`.

    Each is the name of a value, `KIND[:OUTPUT][@SETTINGS]` or `pkg.mod:function[:OUTPUT]`, with
    `WEIGHT*` before it; or a function.  Labels become a graph input: `labels`, or one per output if
    several outputs have some, or what `labels` says for an output.

    Raises:
        UsageError: there is no such output, or it cannot be a loss.
    """
    several = [wanted] if isinstance(wanted, str) or callable(wanted) else list(wanted)
    if several in (["auto"], []):
        return _automatic(op, labels)
    if "auto" in several:
        raise UsageError("--loss auto stands alone; name every loss")
    terms = [term(op.graph, one) for one in several]
    names = label.names(terms, labels)
    if len(terms) > 1 or terms[0].weight != 1:
        return _weighted(op, terms, names)
    (one,) = terms
    if one.kind is None:
        return _as_it_is(one.output)
    return _append(op, one, names[0], one.kind.said)


def _automatic(op: Builder, labels: LabelNames) -> Loss:
    choice = choose(op)
    return replace(_chosen(op, choice, labels), others=choice.others)


def _chosen(op: Builder, choice: Choice, labels: LabelNames) -> Loss:
    chosen = choice.term
    if chosen.kind is None:
        said = f"the scalar output {chosen.called!r} (auto)"
        return Loss(chosen.output, said, loud=choice.loud)
    if chosen.kind.labels is None:
        said = f"the {chosen.kind.said} of output {chosen.called!r} (auto)"
        return replace(_append(op, chosen, "", said), loud=choice.loud)
    (name,) = label.names([chosen], labels)
    said = f"{chosen.kind.said} (auto, output {chosen.called!r}{choice.why}"
    return _append(op, chosen, name, said, closing=")")


def _as_it_is(value: ir.Value) -> Loss:
    if not is_float(value):
        raise UsageError(f"--loss {value.name}: it is not a float")
    if not is_scalar(value):
        raise UsageError(
            f"--loss {value.name}: it has shape {value.shape}, a loss has one element; "
            f"try --loss mean:{value.name}"
        )
    return Loss(value, f"{value.name!r}")


# -------------------------------------------------------------------------------- appending


def _weighted(op: Builder, terms: Sequence[Term], names: Sequence[str]) -> Loss:
    """`Σ weight · loss`; each loss becomes an output of its own, called after what it is of."""
    parts = [
        _as_it_is(term.output)
        if term.kind is None
        else _append(op, term, name, term.said, f"loss_{term.output.name}")
        for term, name in zip(terms, names, strict=True)
    ]
    values = [part.value for part in parts if part.value is not None]
    dtype = max((v.dtype for v in values if v.dtype is not None), key=lambda d: d.bitwidth)
    with op.at(None, stage="forward", source="", prefix="loss"), op.arithmetic():
        cast = (op.cast(as_tensor(v), dtype) for v in values)
        scaled = [
            value if term.weight == 1 else op.Mul(value, term.weight)
            for term, value in zip(terms, cast, strict=True)
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
    shifts = {name: shift for part in parts for name, shift in part.shifts.items()}
    warnings = dict.fromkeys(line for part in parts for line in part.warnings)
    return Loss(total, said, tuple(labels), shifts=shifts, warnings=tuple(warnings))


def _append(
    op: Builder, term: Term, labels: str, said: str, name: str = "loss", *, closing: str = ""
) -> Loss:
    """Emit the formula of a loss, and the input of its labels if it has some."""
    kind, output = term.kind, term.output
    assert kind is not None  # noqa: S101 - a value that is the loss itself needs no formula
    if output.shape is None:
        raise NotDifferentiable(deciding.of_unknown([output]))
    made: tuple[str, ...] = ()
    shifts: dict[str, int] = {}
    warnings: tuple[str, ...] = ()
    with op.at(None, stage="forward", source="", prefix=name), op.arithmetic():
        if not term.arguments:
            output = _wide(op, output)
        if term.arguments:
            value, labelled = _of_arguments(op, term)
            made = tuple(v.name or "" for v in labelled)
            said = term.said + "".join(f", labels: {label.show(v)}" for v in labelled)
        elif kind.labels is not None:
            axis = label.class_axis(op.graph, term, labels)
            soft = axis is not None and label.are_soft(op.graph, term, labels)
            target = label.target(op, output, labels, None if soft else axis)
            if axis is not None and len(output.shape or ()) > 2:
                said += f", classes on axis {axis}"
            said += f", labels: {label.show(target)}"
            made = (target.name or "",)
            if term.settings.shift:
                shifts[made[0]] = term.settings.shift
            elif axis is not None and target.uses():
                warnings = (label.COPIED.format(made[0], made[0]),)
            if (axis is None or soft) and target.dtype in HALVES:
                target = op.cast(as_tensor(target), output.dtype or ir.DataType.FLOAT)
            counts, weighing = label.counts(op, replace(term, output=output), axis, target)
            made = (*made, *weighing)
            wide = replace(term, output=output)
            value = _of_labels(op, wide, target, axis, soft=soft, counts=counts)
        else:
            value = _made(kind, op, output, **term.settings.numbers)
    if not isinstance(value, ir.Value) or not is_float(value) or not is_scalar(value):
        found = label.show(value) if isinstance(value, ir.Value) else type(value).__name__
        raise UserCodeError(
            f"--loss {kind.name}: it returned {found}, a loss is one float{place_of(kind.formula)}"
        )
    value.name = op.names.fresh(name)
    op.graph.outputs.append(value)
    return Loss(value, said + closing, made, shifts=shifts, warnings=warnings)


def _of_arguments(op: Builder, term: Term) -> tuple[object, list[ir.Value]]:
    """The loss of values by name, or of several outputs in their order; and which are labels."""
    kind, numbers = term.kind, term.settings.numbers
    assert kind is not None  # noqa: S101 - it takes arguments
    given = [each.given(op, term.asked) for each in term.arguments]
    labelled = [v for v in given if v.is_graph_input() and not v.uses()]
    wide = [_wide(op, v) for v in given]
    if kind.outputs > 1:
        return _made(kind, op, *wide, **numbers), labelled
    named = {a.name: v for a, v in zip(term.arguments, wide, strict=True)}
    return _made(kind, op, **named, **numbers), labelled


def _wide(op: Builder, value: ir.Value) -> ir.Value:
    """A value in float32, if parameters have masters of this type."""
    narrow = op.masters and value.dtype in HALVES
    return op.cast(as_tensor(value), ir.DataType.FLOAT) if narrow else value


def _of_labels(
    op: Builder,
    term: Term,
    target: ir.Value,
    axis: int | None,
    *,
    soft: bool,
    counts: ir.Value | None,
) -> object:
    """The loss, with the classes along the axis that its formula takes them on."""
    kind, output, said = term.kind, term.output, term.settings
    assert kind is not None  # noqa: S101 - it has labels
    how: dict[str, Any] = dict(said.numbers)
    if counts is not None:
        how["counts"] = counts
    if said.ignore is not None:
        how["ignore"] = said.ignore
    if said.smoothing:
        how["smoothing"] = said.smoothing
    if said.weight is not None:
        how["weight"] = class_weights(
            op, said.weight, output, -1 if axis is None else axis, term.asked
        )
    if axis is None:
        return _made(kind, op, output, target, **how)
    if soft:
        how["soft"] = True
    if said.shift:
        output, target = label.shifted(op, term, target, axis, soft=soft)
    if kind.takes_axis:
        return _made(kind, op, output, target, axis, **how)
    rest = [i for i in range(len(output.shape or ())) if i != axis]
    return _made(kind, op, op.transpose(as_tensor(output), [*rest, axis]), target, **how)


def _made(kind: Kind, *arguments: Any, **settings: Any) -> Any:
    """The result of a formula.

    Raises:
        UserCodeError: a formula of the user's takes other arguments, or raises.
    """
    if kind.is_own:
        return kind.formula(*arguments, **settings)
    what = f"--loss {kind.name}"
    require_call(what, kind.formula, *arguments, **settings)
    with user_code(what, kind.formula):
        return kind.formula(*arguments, **settings)

"""The input that holds the labels of a loss: its name, its shape, and which axis it leaves out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.predicates import HALVES, is_float
from gradtool.graph.typed import Tensor, as_tensor
from gradtool.losses.output_heads import Ending, ending
from gradtool.losses.terms import Term
from gradtool.operators.losses import NO_CLASS

COPIED = (
    "the labels {!r} are the input {!r} itself: each place learns to repeat its own; a causal "
    "model learns the next one by @shift=1"
)
LabelNames = str | Mapping[str, str]


def names(terms: Sequence[Term], labels: LabelNames) -> list[str]:
    """The name of each term's labels: one for all if they are the same, else one per output."""
    given = {} if isinstance(labels, str) else labels
    base = labels if isinstance(labels, str) else labels.get("", "labels")
    _check_names(terms, given)
    taking = {(t.called, t.kind.labels): None for t in terms if t.kind and t.kind.labels}
    outputs = [output for output, _ in taking]
    found = []
    for term in terms:
        output = term.called
        name = base if len(taking) == 1 else f"{base}_{output}"
        if term.kind and outputs.count(output) > 1:
            name = f"{name}_{term.kind.labels}"
        found.append(given.get(output, name))
    return found


def _check_names(terms: Sequence[Term], given: Mapping[str, str]) -> None:
    outputs = [t.called for t in terms]
    for output in given:
        if output and output not in outputs:
            raise UsageError(f"--labels {output}=: no loss is of that output; {', '.join(outputs)}")


# -------------------------------------------------------------------------------- classes


def class_axis(graph: ir.Graph, term: Term, labels: str) -> int | None:
    """The axis of a term's output along which its classes lie; None if its labels are no classes.

    It is the axis asked for; else the only one that the labels of the model leave out; else the
    one that the output's last layer says; else the last of up to three axes, and axis 1 of more.

    Raises:
        UsageError: there is no such axis, or it has one class.
    """
    if term.kind is None or term.kind.labels != "classes":
        return None
    rank = len(term.output.shape or ())
    if not rank:
        raise UsageError(f"--loss {term.asked}: {term.called!r} is one number, and has no classes")
    said = ending(term.output)
    axis = term.settings.axis
    if axis is None:
        axis = _left_out(graph, term.output, labels)
    if axis is None:
        axis = said.axis
    if axis is None:
        axis = rank - 1 if rank <= 3 else 1
    axis %= rank
    _refuse_one_class(term, axis, said)
    return axis


def _left_out(graph: ir.Graph, output: ir.Value, labels: str) -> int | None:
    """The one of the last axis and axis 1 that an input of the model, called `labels`, lacks."""
    found = [v for v in graph.inputs if v.name == labels and v.shape is not None]
    sizes = list(output.shape or ())
    if not found or len(sizes) < 3:
        return None
    fits = [a for a in (1, len(sizes) - 1) if list(found[0].shape or ()) == without(sizes, a)]
    return fits[0] if len(fits) == 1 else None


def _refuse_one_class(term: Term, axis: int, said: Ending) -> None:
    if (term.output.shape or ())[axis] != 1:
        return
    binary = "bce" if said.activation == "Sigmoid" else "bce-logits"
    raise UsageError(
        f"--loss {term.asked}: {show(term.output)} has one class along axis {axis}, whose "
        f"cross-entropy is always 0; for numbers choose --loss mse:{term.called}, "
        f"for a yes or no --loss {binary}:{term.called}"
    )


def are_soft(graph: ir.Graph, term: Term, labels: str) -> bool:
    """Whether labels are probabilities of classes: as is asked for, or as the model has them."""
    assert term.kind is not None  # noqa: S101 - it has labels
    if term.settings.soft:
        return True
    found = next((v for v in graph.inputs if v.name == labels), None)
    if found is None or "soft" not in inspect.signature(term.kind.formula).parameters:
        return False
    return is_float(found) and len(found.shape or ()) == len(term.output.shape or ())


def shifted(
    op: Builder, term: Term, target: ir.Value, axis: int, *, soft: bool
) -> tuple[Tensor, Tensor]:
    """Scores without the last places, and labels without the first: those that are ahead.

    Places lie along the last axis beside that of the classes.

    Raises:
        UsageError: there are no more places than labels are ahead.
    """
    output, shift = as_tensor(term.output), term.settings.shift
    place = max(i for i in range(len(output.shape)) if i != axis)
    size = output.shape[place]
    if isinstance(size, int) and size <= shift:
        raise UsageError(
            f"--loss {term.asked}: {show(output)} has {size} places along axis {place}, a shift of "
            f"{shift} leaves none"
        )
    along = place if soft or place < axis else place - 1
    ahead = op.slice(as_tensor(target), along, shift, NO_CLASS)
    return op.slice(output, place, 0, -shift), ahead


def without(sizes: Sequence[Any], axis: int) -> list[Any]:
    """The sizes but that of one axis."""
    return [size for i, size in enumerate(sizes) if i != axis]


# ---------------------------------------------------------------------------------- input


def target(op: Builder, output: ir.Value, labels: str, axis: int | None) -> ir.Value:
    """The graph input of the labels, made if the model has none of this name.

    With an axis they are classes along it, else like the output.
    """
    sizes = list(output.shape or ())
    shape = sizes if axis is None else without(sizes, axis)
    dtype = output.dtype if axis is None else ir.DataType.INT64
    for existing in op.graph.inputs:
        if existing.name == labels:
            _check(existing, shape, dtype, classes=axis is not None)
            return existing
    made = ir.Value(
        name=op.names.fresh(labels),
        shape=ir.Shape(shape),
        type=ir.TensorType(dtype or ir.DataType.FLOAT),
    )
    op.graph.inputs.append(made)
    return made


def counts(
    op: Builder, term: Term, axis: int | None, target: ir.Value
) -> tuple[Tensor | None, tuple[str, ...]]:
    """How much each label counts, in the shape of a loss of each, and the input that says it.

    That is a weight for each example, or one for each label, of which False and 0 do not count.

    Raises:
        UsageError: the input has another shape, or the loss is held against labels ahead.
    """
    said, output = term.settings, as_tensor(term.output)
    name = said.examples or said.mask
    if name is None:
        return None, ()
    if said.shift:
        key = "examples" if said.examples else "mask"
        raise UsageError(f"--loss {term.asked}: {key} cannot be combined with shift")
    sizes = list(output.shape) if axis is None else without(list(output.shape), axis)
    shape = sizes[:1] if said.examples else sizes
    given = next((v for v in op.graph.inputs if v.name == name), None)
    if given is None:
        given = ir.Value(
            name=name, shape=ir.Shape(shape), type=ir.TensorType(output.dtype or ir.DataType.FLOAT)
        )
        op.graph.inputs.append(given)
    own = list(given.shape or ())
    if len(own) != len(shape) or any(_differ(a, b) for a, b in zip(own, shape, strict=True)):
        raise UsageError(
            f"--loss {term.asked}: the model has an input {show(given)}, the loss takes sizes "
            f"[{', '.join(map(str, shape))}]"
        )
    wide = op.cast(as_tensor(given), output.dtype)
    wide = op.unsqueeze(wide, list(range(len(own), len(sizes))))
    like = as_tensor(target)
    if axis is not None and len(like.shape) > len(sizes):  # shares of classes
        like = op.ReduceMax(like, [axis], keepdims=0)
    return op.expand(wide, like), (name,)


def _check(labels: ir.Value, shape: list[Any], dtype: ir.DataType | None, *, classes: bool) -> None:
    """An input of the model that serves as labels has to fit; it must not be broadcast."""
    own = list(labels.shape) if labels.shape is not None else []
    if classes:
        fits = labels.dtype in (ir.DataType.INT32, ir.DataType.INT64)
    else:
        narrower = dtype == ir.DataType.FLOAT and labels.dtype in HALVES  # the loss is wider
        fits = (labels.dtype == dtype or narrower) and len(own) == len(shape)
        fits = fits and not any(_differ(a, b) for a, b in zip(own, shape, strict=True))
    if not fits:
        dims = ", ".join(map(str, shape))
        wanted = "integers" if classes else f"{str(dtype).lower()}[{dims}]"
        raise UsageError(
            f"--labels {labels.name}: the model has an input {show(labels)}, "
            f"the loss takes {wanted}; choose another name"
        )


def _differ(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


def show(value: ir.Value) -> str:
    """`logits float[N, 4]`."""
    dims = ", ".join(str(d) for d in value.shape or ())
    return f"{value.name} {str(value.dtype).lower()}[{dims}]"

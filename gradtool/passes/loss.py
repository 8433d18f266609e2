"""Which number is minimised: an output as it is, or a loss appended to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from gradtool.builder import Builder
from gradtool.errors import UsageError
from gradtool.text import suggest


@dataclass(frozen=True)
class Loss:
    """The loss of a training graph; `value` is None where head gradients take its place.

    `said` tells people how it was chosen; `loud` asks to warn.
    """

    value: ir.Value | None
    said: str
    labels: str | None = None
    loud: bool = False


def attach(op: Builder, wanted: str, labels: str = "labels") -> Loss:
    """Find or append the loss `wanted`: `auto`, the name of a value, or `KIND[:OUTPUT]`.

    Labels become the graph input `labels` where the loss has a target.

    Raises:
        UsageError: there is no such output, or it cannot be a loss.
    """
    graph = op.graph
    if wanted == "auto":
        return _automatic(op, labels)
    named = _value_named(graph, wanted)
    if named is not None:
        return _as_it_is(named)
    kind, _, output = wanted.partition(":")
    if kind not in KINDS:
        names = [*KINDS, *(v.name or "" for v in graph.outputs)]
        raise UsageError(
            f"--loss {wanted}: neither a value of the model nor a loss "
            f"({', '.join(KINDS)}){suggest(wanted, names)}"
        )
    return _append(op, kind, _output(graph, output, kind), labels, f"{KINDS[kind][0]}")


def _automatic(op: Builder, labels: str) -> Loss:
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
            said = f"{KINDS['ce'][0]} (auto, output {deep[0].name!r}"
            said += ", its Softmax left out" if stripped else ""
            return _append(op, "ce", scores, labels, said, closing=")")
    target = (deep or floats)[0]
    made = _append(op, "mean", target, labels, f"the mean of output {target.name!r} (auto)")
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


def _append(
    op: Builder, kind: str, output: ir.Value, labels: str, said: str, *, closing: str = ""
) -> Loss:
    description, integer, formula = KINDS[kind]
    target = None
    with op.at(None, stage="forward", source="", prefix="loss"), op.arithmetic():
        if integer is not None:
            target = _target(op, output, labels, integer=integer)
            said += f", labels: {_show(target)}"
            value = formula(op, output, target)
        else:
            value = formula(op, output)
    value.name = op.names.fresh("loss")
    op.graph.outputs.append(value)
    del description
    return Loss(value, said + closing, target.name if target is not None else None)


def _target(op: Builder, output: ir.Value, labels: str, *, integer: bool) -> ir.Value:
    """The graph input that holds the labels, made if the model has none of that name."""
    shape = list(output.shape or ())
    dtype = ir.DataType.INT64 if integer else output.dtype
    shape = shape[:-1] if integer else shape
    for existing in op.graph.inputs:
        if existing.name == labels:
            _check_target(existing, shape, dtype, integer=integer)
            return existing
    made = ir.Value(
        name=op.names.fresh(labels),
        shape=ir.Shape(shape),
        type=ir.TensorType(dtype or ir.DataType.FLOAT),
    )
    op.graph.inputs.append(made)
    return made


def _check_target(
    labels: ir.Value, shape: list[Any], dtype: ir.DataType | None, *, integer: bool
) -> None:
    """An input of the model that serves as labels has to fit; it must not be broadcast."""
    own = list(labels.shape) if labels.shape is not None else []
    if integer:
        fits = labels.dtype in (ir.DataType.INT32, ir.DataType.INT64)
    else:
        fits = labels.dtype == dtype and len(own) == len(shape)
        fits = fits and not any(_differ(a, b) for a, b in zip(own, shape, strict=True))
    if not fits:
        wanted = "integers" if integer else f"{str(dtype).lower()}[{', '.join(map(str, shape))}]"
        raise UsageError(
            f"--labels {labels.name}: the model has an input {_show(labels)}, "
            f"the loss takes {wanted}; choose another name"
        )


def _differ(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


def _cross_entropy(op: Any, scores: ir.Value, labels: ir.Value) -> Any:
    """`mean(-log softmax(scores)[label])` over the last axis."""
    return op.SoftmaxCrossEntropyLoss(*_flat(op, scores, labels), reduction="mean")


def _nll(op: Any, scores: ir.Value, labels: ir.Value) -> Any:
    """`mean(-scores[label])` over the last axis; scores are log-probabilities."""
    return op.NegativeLogLikelihoodLoss(*_flat(op, scores, labels), reduction="mean")


def _flat(op: Any, scores: ir.Value, labels: ir.Value) -> tuple[Any, Any]:
    """Scores as `[N, C]` and labels as `[N]`."""
    shape = list(scores.shape or ())
    if len(shape) == 2:
        return scores, labels
    return op.reshape(scores, [-1, shape[-1]]), op.reshape(labels, [-1])


def _mean(op: Any, y: ir.Value) -> Any:
    return op.ReduceMean(y, keepdims=0)


def _sum(op: Any, y: ir.Value) -> Any:
    return op.ReduceSum(y, keepdims=0)


def _mse(op: Any, y: ir.Value, target: ir.Value) -> Any:
    error = y - target
    return _mean(op, error * error)


def _l1(op: Any, y: ir.Value, target: ir.Value) -> Any:
    return _mean(op, op.Abs(y - target))


def _bce(op: Any, y: ir.Value, target: ir.Value) -> Any:
    """`mean(-t·log σ(y) - (1-t)·log(1-σ(y)))` `= mean(softplus(y) - y·t)`."""
    return _mean(op, op.Softplus(y) - y * target)


Formula = Callable[..., Any]
KINDS: dict[str, tuple[str, bool | None, Formula]] = {
    "ce": ("softmax cross-entropy", True, _cross_entropy),
    "mse": ("mean squared error", False, _mse),
    "l1": ("mean absolute error", False, _l1),
    "bce-logits": ("binary cross-entropy of logits", False, _bce),
    "nll": ("negative log-likelihood", True, _nll),
    "mean": ("mean", None, _mean),
    "sum": ("sum", None, _sum),
}


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _is_scalar(value: ir.Value) -> bool:
    return value.shape is not None and all(d == 1 for d in value.shape)


def _show(value: ir.Value) -> str:
    dims = ", ".join(str(d) for d in value.shape or ())
    return f"{value.name} {str(value.dtype).lower()}[{dims}]"

"""Steps of optimizers, of ai.onnx.preview.training, in standard operators.

No other runtime has these operators, and their bodies can be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.families import PREVIEW as DOMAIN
from gradtool.graph.metadata import SOURCE, STAGE
from gradtool.graph.prune import succeed
from gradtool.operators.updates import decayed, descended, means, velocity


def lower_updates(op: Builder) -> int:
    """Replace every Adam, Adagrad and Momentum of the builder's model, in place.

    Returns how many there were.
    """
    graph = op.model.graph
    nodes = [n for n in walk.nodes(graph) if n.domain == DOMAIN and n.op_type in RULES]
    for node in nodes:
        stage = node.metadata_props.get(STAGE, "forward")
        source = node.metadata_props.get(SOURCE, "")
        with op.at(node, stage=stage, source=source, prefix=node.name or ""), op.arithmetic():
            made = RULES[node.op_type](op, node)
        for before, after in zip(node.outputs, made, strict=True):
            succeed(after, before)
        assert node.graph is not None  # noqa: S101 - a node found in a graph
        node.graph.remove(node, safe=True)
    if nodes and not any(n.domain == DOMAIN for n in walk.nodes(graph)):
        graph.opset_imports.pop(DOMAIN, None)
    return len(nodes)


def _groups(node: ir.Node, kinds: int) -> list[tuple[Any, ...]]:
    """The tensors of one parameter each: itself, its gradient, its state."""
    tensors = node.inputs[2:]
    count = len(tensors) // kinds
    return list(zip(*(tensors[k * count : (k + 1) * count] for k in range(kinds)), strict=True))


def _flat(results: Sequence[tuple[Any, ...]]) -> list[Any]:
    """All new parameters, then all states of one kind, then those of the next."""
    return [value for kind in zip(*results, strict=True) for value in kind]


def _number(node: ir.Node, name: str, default: float) -> float:
    return node.attributes.get_float(name, default)


def _regularised(x: Any, g: Any, factor: float) -> Any:
    return g + x * factor if factor else g


def _scalar(op: Any, value: Any, dtype: ir.DataType) -> Any:
    return op.cast(op.reshape(value, []), dtype)


def _adagrad(op: Any, node: ir.Node) -> list[Any]:
    """`x - r · g / (√h + ε)` and `h + g²`, with `r = R / (1 + T · decay)`."""
    results = []
    for x, g, h in _groups(node, 3):
        rate, count = (_scalar(op, v, x.dtype) for v in node.inputs[:2])
        decay = _number(node, "decay_factor", 0.0)
        rate = rate / (1 + count * decay) if decay else rate
        g = _regularised(x, g, _number(node, "norm_coefficient", 0.0))  # noqa: PLW2901
        new = h + g * g
        moved = descended(x, rate, g, op.Sqrt(new), _number(node, "epsilon", 1e-6))
        results.append((moved, new))
    return _flat(results)


def _adam(op: Any, node: ir.Node) -> list[Any]:
    """`x - r · v / (√h + ε)`, with running means v of the gradient and h of its square.

    PyTorch's Adam differs: there ε is added to √h after the correction of its bias.
    """
    alpha, beta = _number(node, "alpha", 0.9), _number(node, "beta", 0.999)
    post = _number(node, "norm_coefficient_post", 0.0)
    results = []
    for x, g, v, h in _groups(node, 4):
        rate, count = (_scalar(op, value, x.dtype) for value in node.inputs[:2])
        turns = op.Max(count, op.constant(1.0, x.dtype))  # at 0 the rate is R, and not 0 / 0
        powers = (op.Pow(op.constant(base, x.dtype), turns) for base in (alpha, beta))
        first, second = (1 - p for p in powers)
        later = op.Greater(count, op.constant(0.0, x.dtype))
        rate = op.Where(later, rate * op.Sqrt(second) / first, rate)
        g = _regularised(x, g, _number(node, "norm_coefficient", 0.0))  # noqa: PLW2901
        new_v, new_h = means((v, h), g, (1 - alpha, 1 - beta))
        moved = descended(x, rate, new_v, op.Sqrt(new_h), _number(node, "epsilon", 1e-6))
        results.append((decayed(moved, 1 - post) if post else moved, new_v, new_h))
    return _flat(results)


def _momentum(op: Any, node: ir.Node) -> list[Any]:
    """`x - r · v`, or `x - r · (g + alpha · v)` for Nesterov, with `v = alpha · v + beta · g`."""
    alpha, beta = _number(node, "alpha", 0.0), _number(node, "beta", 0.0)
    results = []
    for x, g, v in _groups(node, 3):
        rate, count = (_scalar(op, value, x.dtype) for value in node.inputs[:2])
        later = op.Greater(count, op.constant(0.0, x.dtype))
        factor = op.Where(later, op.constant(beta, x.dtype), op.constant(1.0, x.dtype))
        g = _regularised(x, g, _number(node, "norm_coefficient", 0.0))  # noqa: PLW2901
        new = velocity(v, g, alpha, factor)
        nesterov = node.attributes.get_string("mode", "standard") == "nesterov"
        results.append((x - rate * (g + new * alpha if nesterov else new), new))
    return _flat(results)


RULES: dict[str, Callable[[Any, ir.Node], list[Any]]] = {
    "Adagrad": _adagrad,
    "Adam": _adam,
    "Momentum": _momentum,
}

"""What PyTorch's min-cut partitioner keeps for backward, of an ONNX file without its weights.

The forward pass and its gradients are traced on tensors without data, node by node; what the
partitioner then saves is told by the outputs of the ONNX nodes that compute it.

Source: `min_cut_rematerialization_partition` of torch 2.13, torch/_functorch/partitioners.py, with
its defaults; normalisations are taken to pieces, without which it runs none of them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import getitem
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import fx
from torch._decomp import get_decompositions
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch_eager import Eager
from torch_operators import OPERATORS

_META = torch.device("meta")
_SIZED = {
    OPERATORS[name]
    for name in (
        "Expand", "Pad", "ReduceMean", "ReduceSum", "Reshape", "Slice", "Split", "Squeeze",
        "Tile", "Unsqueeze",
    )
}  # fmt: skip
_NORMALISATIONS = [
    getattr(torch.ops.aten, f"native_{name}{way}")
    for name in ("batch_norm", "layer_norm")
    for way in ("", "_backward")
]
_VIEWS = (
    "_unsafe_view", "alias", "clone", "detach", "expand", "permute", "squeeze", "t", "transpose",
    "unsqueeze", "view",
)  # fmt: skip


class Numbers(list[int]):
    """Constant sizes or axes: as a tensor, reading them would be traced, too."""

    def numel(self) -> int:
        """How many there are."""
        return len(self)


class Traced(Eager):
    """A forward model that notes which traced calls each of its nodes makes.

    `values_of` says by the name of a call which values its result stands for, with their numbers of
    elements: outputs of the node; inputs, if the call is not the last and its result lies inside.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__(model)
        self.values_of: dict[str, dict[str, int]] = {}

    def _tensor(self, proto: onnx.TensorProto) -> torch.Tensor:
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            kind = onnx.helper.tensor_dtype_to_np_dtype(proto.data_type)
            made = torch.empty(tuple(proto.dims), device=_META)
            return made if kind.kind == "f" else made.to(getattr(torch, kind.name))
        return super()._tensor(proto)

    def __call__(self, feeds: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Every value by name."""
        mode = get_proxy_mode()
        nodes = mode.tracer.graph.nodes if mode is not None else ()
        known, seen = self.values | feeds, len(nodes)
        for function, attributes, inputs, outputs in self.nodes:
            given = [known[i] if i else None for i in inputs]
            convert = _numbers if function in _SIZED else _dataless
            made = function(attributes, *map(convert, given))
            known |= zip(outputs, made if isinstance(made, tuple) else (made,), strict=False)
            calls = list(nodes)[seen:]
            results = {c for c in calls if c.target is getitem} | set(_chain(calls[-1:]))
            for call in calls:
                named = outputs if call in results else [i for i in inputs if i not in self.values]
                self.values_of[call.name] = {n: known[n].numel() for n in named if n in known}
            seen = len(nodes)
        return known


def saved(path: Path, budget: float = 1.0, loss: str = "loss") -> set[str]:
    """The values of the ONNX file that are saved with an `activation_memory_budget`.

    A tensor inside of an operator counts as the operator's input of that size, since that is what
    our gradients read instead; statistics do not count, nor does what only gradients compute.
    """
    proto = onnx.load(path, load_external_data=False)
    model = Traced(proto)
    names = [n for n, v in model.values.items() if v.device == _META and v.is_floating_point()]
    given = {v.name: _like(v) for v in proto.graph.input if v.name not in model.values}

    def joint(primals: list[Any], tangents: list[Any]) -> Any:
        leaves = dict(zip(names, primals[: len(names)], strict=True))
        feeds = dict(zip(given, primals[len(names) :], strict=True))
        value = model(feeds | leaves)[loss]
        gradients = torch.autograd.grad(value, list(leaves.values()), tangents, allow_unused=True)
        return [value], list(gradients)

    primals = [model.values[n].requires_grad_() for n in names] + list(given.values())
    tangents = [torch.ones((), device=_META)]
    pieces = get_decompositions(_NORMALISATIONS)
    arguments = primals, tangents
    tracer = make_fx(joint, pieces, tracing_mode="fake", _allow_non_fake_inputs=True)
    traced = tracer(*arguments)
    with config.patch(activation_memory_budget=budget):
        forward, _ = min_cut_rematerialization_partition(traced, arguments, num_fwd_outputs=1)
    kept = next(n for n in forward.graph.nodes if n.op == "output").args[0][1:]
    bases = [base for node in kept if (base := _base(node)).op != "placeholder"]
    return {
        value
        for base in bases
        for value, size in model.values_of.get(base.name, {}).items()
        if size == base.meta["val"].numel()
    }


def _like(value: onnx.ValueInfoProto) -> torch.Tensor:
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    return torch.empty(shape, device=_META, dtype=getattr(torch, kind.name))


def _numbers(value: torch.Tensor | None) -> Any:
    constant = value is not None and value.device != _META and not value.is_floating_point()
    return Numbers(value.tolist()) if constant and value is not None and value.dim() else value


def _dataless(value: torch.Tensor | None) -> torch.Tensor | None:
    return value if value is None or not value.dim() else value.to(_META)


def _chain(nodes: list[fx.Node]) -> Iterator[fx.Node]:
    """A node, what it shows if it is a view, and so on."""
    while nodes and isinstance(nodes[0], fx.Node):
        yield nodes[0]
        target = nodes[0].target
        is_view = isinstance(target, OpOverload) and target.overloadpacket.__name__ in _VIEWS
        nodes = [*nodes[0].args[:1]] if is_view else []  # type: ignore[list-item]


def _base(node: fx.Node) -> fx.Node:
    """What a chain of views shows."""
    return list(_chain([node]))[-1]

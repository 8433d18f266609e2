"""What PyTorch's min-cut partitioner keeps for backward, of an ONNX file without its weights.

The forward pass and its gradients are traced on tensors without data, node by node; what the
partitioner then saves is told by the outputs of the ONNX nodes that compute it.

Source: `min_cut_rematerialization_partition` of torch 2.13, torch/_functorch/partitioners.py, with
its defaults; normalisations are taken to pieces, without which it runs none of them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import torch
from torch import fx
from torch._decomp import get_decompositions
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
_VIEWS = ("alias", "detach", "expand", "permute", "squeeze", "t", "transpose", "unsqueeze", "view")


class Numbers(list[int]):
    """Constant sizes or axes: as a tensor, reading them would be traced, too."""

    def numel(self) -> int:
        """How many there are."""
        return len(self)


class Traced(Eager):
    """A forward model that notes which traced calls each of its nodes makes.

    `outputs_of` gives the outputs of the ONNX node, with their numbers of elements, by the name of
    a call.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__(model)
        self.outputs_of: dict[str, dict[str, int]] = {}

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
            for call in list(nodes)[seen:]:
                self.outputs_of[call.name] = {o: known[o].numel() for o in outputs if o in known}
            seen = len(nodes)
        return known


def saved(path: Path, loss: str = "loss") -> set[str]:
    """The values of the ONNX file that are saved.

    Something of their size is, by the node that computes them: a tensor inside of an operator
    counts as its output, but statistics do not.
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
    traced = make_fx(joint, decomposition_table=pieces)(primals, tangents)
    forward, _ = min_cut_rematerialization_partition(traced, (primals, tangents), num_fwd_outputs=1)
    kept = next(n for n in forward.graph.nodes if n.op == "output").args[0][1:]
    bases = [base for node in kept if (base := _base(node)).op != "placeholder"]
    return {
        value
        for base in bases
        for value, size in model.outputs_of[base.name].items()
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


def _base(node: fx.Node) -> fx.Node:
    """What a chain of views shows."""
    while isinstance(node.target, OpOverload) and node.target.overloadpacket.__name__ in _VIEWS:
        node = node.args[0]  # type: ignore[assignment]
    return node

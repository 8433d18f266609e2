"""What transformers computes in float64 with the weights of a decoder's file.

The numbers of a file, decoded where they have few bits, are leaves by the names they have there;
parameters of transformers are made of them (packed projections cut or joined, gains that the
file has one added to), so that its gradients are those of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from genai_decoders import head_size
from onnx import numpy_helper
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

Array = np.ndarray[Any, Any]
RANK = 4  # of adapters
OFFSET = ("gemma", "gemma2", "nemotron")  # model types whose gains are 1 more in a file
PACKS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
RENAMED = (
    (r"^/?(?:model\.)?(model\.layers|lm_head)", r"\1"), (r"\bself_attn\b", "attn"),
    (r"\bdense\b", "o_proj"), (r"\.([qk]_norm)\.layernorm$", r".\1"),
    (r"\.(query|key)_layernorm$", lambda m: f".{m[1][0]}_norm"),
    (r"^model\.(model\.)?(norm|final_layernorm|layers\.\d+\.final_norm_layernorm)$", "model.norm"),
    (r"^model\.model\.", "model."),
)  # fmt: skip


def called(module: str) -> str:
    """The name of a module that files and transformers share."""
    for pattern, into in RENAMED:
        module = re.sub(pattern, into, module)
    return module


# ------------------------------------------------------------------------- of a file


@dataclass
class Weights:
    """The numbers of a decoder's file: by module and kind, as `[in, out]` where it multiplies.

    `floats` have a name in the file; `coded` are decoded, beside the name of their codes.
    `rounded` modules multiply activations of 8 bits.
    """

    floats: dict[tuple[str, str], tuple[str, Array]] = field(default_factory=dict)
    coded: dict[tuple[str, str], tuple[str, Array]] = field(default_factory=dict)
    rounded: set[str] = field(default_factory=set)

    def __getitem__(self, key: tuple[str, str]) -> tuple[str, Array] | None:
        return self.coded.get(key) or self.floats.get(key)


def weights_of(file: Path) -> Weights:
    """Read them."""
    return _Reader(onnx.load(file)).read()


class _Reader:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.held = {t.name: t for t in model.graph.initializer}
        self.makers = {name: node for node in model.graph.node for name in node.output}
        self.found = Weights()

    def read(self) -> Weights:
        """The weights of all nodes that have a method here."""
        for node in self.graph.node:
            read = getattr(self, node.op_type, None)
            if read is not None:
                given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
                read(node, given)
        named = {name for name, _ in self.found.floats.values()}
        for name, tensor in self.held.items():
            module, _, kind = name.rpartition(".")
            if name not in named and kind in ("weight", "bias") and tensor.data_type in (1, 10):
                module, found = called(module.removesuffix(".Add")), self.array(name)
                self.found.floats.setdefault((module, kind), (name, found))
        return self.found

    def array(self, name: str) -> Array:
        """Numbers of an initializer, perhaps behind nodes that lay it out."""
        while name not in self.held:
            name = self.makers[name].input[0]
        tensor = self.held[name]
        found = numpy_helper.to_array(tensor)
        return found if tensor.data_type == onnx.TensorProto.UINT8 else found.astype(np.float64)

    def module(self, node: onnx.NodeProto) -> str:
        path = re.sub(r"(/(MatMul|Gemm)(_matmul)?|_Q\d\w*|_DQ|_quant|/Gather\w*)+$", "", node.name)
        return called(path.strip("/").replace("/", "."))

    # ---- by operator

    def MatMulNBits(self, node: onnx.NodeProto, given: Mapping[str, Any]) -> None:
        bits, size, k, n = (given[name] for name in ("bits", "block_size", "K", "N"))
        codes = unpacked(self.array(node.input[1]), bits).reshape(n, -1)
        scale = self.array(node.input[2]).reshape(n, -1)
        zero = np.full(scale.shape, 1 << (bits - 1))
        if len(node.input) > 3 and node.input[3]:
            zero = unpacked(self.array(node.input[3]).reshape(n, -1), bits)[:, : scale.shape[1]]
        found = blockwise(codes, scale, zero, size)[:, :k].T
        self.found.coded[self.module(node), "weight"] = node.input[1], found

    def MatMul(self, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
        maker = self.makers.get(node.input[1])
        if maker is not None and maker.op_type == "Transpose":
            maker = self.makers[maker.input[0]]
        if node.input[1] in self.held:
            found = node.input[1], self.array(node.input[1])
            self.found.floats[self.module(node), "weight"] = found
        elif maker is not None and maker.op_type == "DequantizeLinear":
            found = self.dequantised(maker)
            turned = maker.output[0] != node.input[1]
            codes = maker.input[0], found.T if turned else found
            self.found.coded[self.module(node), "weight"] = codes

    def MatMulInteger(self, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
        codes, stem = node.input[1], node.input[1].removesuffix("_quantized")
        if codes not in self.held:
            raise KeyError(f"{node.name}: a product of activations of 8 bits")
        scale, zero = self.array(f"{stem}_scale"), self.array(f"{stem}_zero_point")
        found = (self.array(codes).astype(np.float64) - zero) * scale
        module = self.module(node)
        self.found.coded[module, "weight"] = codes, found
        self.found.rounded.add(module)

    def Mul(self, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
        """By a gain that TorchScript has added one to."""
        for name in node.input:
            if name in self.held and name.startswith("onnx::Mul_"):
                module = called(node.name.strip("/").rpartition("/")[0].replace("/", "."))
                self.found.floats[module, "weight"] = name, self.array(name)

    def Gather(self, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
        """Of a head that is the table of embeddings as well, transposed."""
        maker = self.makers.get(node.input[0])
        if maker is not None and maker.op_type == "Transpose" and maker.input[0] in self.held:
            found = maker.input[0], self.array(maker.input[0]).T
            self.found.floats["model.embed_tokens", "weight"] = found

    def DequantizeLinear(self, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
        """Of the rows of a table that are looked up."""
        maker = self.makers.get(node.input[0])
        if maker is not None and maker.op_type == "Gather":
            codes, scale, zero = (self.array(n) for n in (maker.input[0], *node.input[1:3]))
            found = maker.input[0], (codes.astype(np.float64) - zero) * scale
            self.found.coded["model.embed_tokens", "weight"] = found

    def GatherBlockQuantized(self, node: onnx.NodeProto, given: Mapping[str, Any]) -> None:
        """Of the rows of a table that are looked up, decoded by block."""
        bits = given.get("bits", 4)
        codes, scale = self.array(node.input[0]), self.array(node.input[2])
        packed = codes.dtype == np.uint8
        codes = codes.reshape(len(codes), -1)
        codes = unpacked(codes, bits) if packed else codes
        scale = scale.reshape(len(codes), -1)
        zero = np.full(scale.shape, 1 << (bits - 1) if packed else 0)
        if len(node.input) > 3 and node.input[3]:
            zero = self.array(node.input[3])
            zero = unpacked(zero, bits) if zero.dtype == np.uint8 else zero
            zero = zero.reshape(len(codes), -1)[:, : scale.shape[1]]
        found = blockwise(codes, scale, zero, given["block_size"])
        self.found.coded["model.embed_tokens", "weight"] = node.input[0], found

    def dequantised(self, node: onnx.NodeProto) -> Array:
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        codes, scale = (self.array(name).astype(np.float64) for name in node.input[:2])
        zero = self.array(node.input[2]) if len(node.input) > 2 else np.zeros_like(scale)
        if not given.get("block_size"):
            return (codes - zero) * scale
        axis = given.get("axis", 1)
        parts = (np.moveaxis(a, axis, -1) for a in (codes, scale, zero))
        return np.moveaxis(blockwise(*parts, given["block_size"]), -1, axis)


def unpacked(packed: Array, bits: int) -> Array:
    """The codes of bytes, the first in the lowest bits."""
    places = np.arange(0, 8, bits)
    found = (packed[..., None] >> places) & ((1 << bits) - 1)
    return found.reshape(*packed.shape[:-1], -1)


def blockwise(codes: Array, scale: Array, zero: Array, size: int) -> Array:
    """`(code - zero) · scale` by blocks of the last axis."""
    scale, zero = (
        np.repeat(a, size, -1)[..., : codes.shape[-1]].astype(np.float64) for a in (scale, zero)
    )
    return (codes.astype(np.float64) - zero) * scale


# -------------------------------------------------------------------------- reference


class Reference:
    """A model of transformers in float64 with the weights of a file."""

    def __init__(self, source: Path, file: Path, *, plain: bool = False) -> None:
        """Read both; `plain` attention knows no windows and no caps of scores."""
        self.weights = weights_of(file)
        config = transformers.AutoConfig.from_pretrained(source)
        if plain:
            config.attn_logit_softcapping = None
            config.layer_types = ["full_attention"] * config.num_hidden_layers
            config.sliding_window = config.max_position_embeddings
        config.tie_word_embeddings = False
        self.config = config
        self.model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", dtype=torch.float64
        ).eval()
        self.names = [name for name, _ in self.model.named_parameters(remove_duplicate=False)]

    def leaves(
        self, named: Mapping[str, Array], dtype: torch.dtype = torch.float64
    ) -> dict[str, Tensor]:
        """What a training graph trains, by its names, with gradients."""
        return {
            name: torch.tensor(array.astype(np.float64), dtype=dtype, requires_grad=True)
            for name, array in named.items()
        }

    def loss(self, leaves: Mapping[str, Tensor], ids: Array, labels: Array) -> Tensor:
        """The mean cross-entropy of each score against the next label."""
        with self._rounding(leaves):
            parameters = {name: self._parameter(name, leaves) for name in self.names}
            call = torch.func.functional_call
            scores = call(self.model, parameters, (torch.from_numpy(ids),)).logits
        ahead = torch.from_numpy(labels)[:, 1:]
        return cross_entropy(scores[:, :-1].flatten(0, 1), ahead.flatten())

    def gradients(
        self, named: Mapping[str, Array], ids: Array, labels: Array,
        dtype: torch.dtype = torch.float64,
    ) -> tuple[float, dict[str, Array]]:  # fmt: skip
        """Loss and gradients of what is trained, computed in a type."""
        leaves = self.leaves(named, dtype)
        loss = self.loss(leaves, ids, labels)
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        pairs = zip(leaves, found, strict=True)
        return loss.item(), {n: np.zeros(()) if g is None else g.double().numpy() for n, g in pairs}

    # ---- parameters of what the file has

    def _parameter(self, name: str, leaves: Mapping[str, Tensor]) -> Tensor:
        module, _, kind = name.rpartition(".")
        owner = called(module)
        stem, _, last = owner.rpartition(".")
        parts = [f"{stem}.{part}" for part in PACKS.get(last, (last,))] if stem else [owner]
        found = torch.cat([self._value(part, kind, leaves) for part in parts], -1)
        if owner.endswith("norm") and kind == "weight" and self.config.model_type in OFFSET:
            found = found - 1
        if found.dim() > 1 and owner != "model.embed_tokens":
            found = found.mT
        return found

    def _value(self, owner: str, kind: str, leaves: Mapping[str, Tensor]) -> Tensor:
        """Numbers `[in, out]` of a module, perhaps of a part of what the file has packed."""
        held = self.weights[owner, kind]
        if held is not None:
            return self._number((owner, kind), held, leaves)
        stem, _, last = owner.rpartition(".")
        for whole, parts in PACKS.items():
            packed = self.weights[f"{stem}.{whole}", kind]
            if last in parts and packed is not None:
                numbers = self._number((f"{stem}.{whole}", kind), packed, leaves)
                return numbers.split(self._sizes(whole), -1)[parts.index(last)]
        raise KeyError(f"{owner}.{kind}")

    def _sizes(self, whole: str) -> list[int]:
        if whole == "gate_up_proj":
            return [self.config.intermediate_size] * 2
        heads = self.config.num_attention_heads, *[self.config.num_key_value_heads] * 2
        return [head_size(self.config) * n for n in heads]

    def _number(
        self, key: tuple[str, str], held: tuple[str, Array], leaves: Mapping[str, Tensor]
    ) -> Tensor:
        name, array = held
        if name in leaves:
            leaf = leaves[name]
            return leaf if tuple(leaf.shape) == array.shape else leaf.mT
        found = torch.from_numpy(np.ascontiguousarray(array)).to(self.model.dtype)
        if key[0] not in self.weights.rounded:
            found = found + self._adapter(name, leaves)
        return found

    def _adapter(self, name: str, leaves: Mapping[str, Tensor]) -> Tensor | float:
        """`A B` of a matrix `[in, out]`, whose adapter is laid out as its file has it."""
        a, b = (leaves.get(f"{name}.lora_{which}") for which in "AB")
        if a is None or b is None:
            return 0.0
        return a @ b if a.shape[1] == RANK else (b @ a).mT

    # ---- activations of 8 bits

    @contextmanager
    def _rounding(self, leaves: Mapping[str, Tensor]) -> Iterator[None]:
        """Let modules round their input as the file does; adapters read it as it was."""
        hooks = []
        self.margin = 1.0
        for path, module in self.model.named_modules():
            owner = called(path)
            if owner in self.weights.rounded and isinstance(module, torch.nn.Linear):
                name, _ = self.weights.coded[owner, "weight"]
                hooks.append(module.register_forward_hook(self._rounded(name, leaves)))
        yield
        for hook in hooks:
            hook.remove()

    def _rounded(self, name: str, leaves: Mapping[str, Tensor]) -> Callable[..., Tensor]:
        def hook(module: Any, inputs: tuple[Tensor], _: Tensor) -> Tensor:
            (x,) = inputs
            y: Tensor = linear(self._bytes(x), module.weight, module.bias)
            return y + x @ adapter if isinstance(adapter, Tensor) else y

        adapter = self._adapter(name, leaves)
        return hook

    def _bytes(self, x: Tensor) -> Tensor:
        """What DynamicQuantizeLinear makes of x; its gradient passes straight through."""
        numbers, none = x.detach().float(), torch.tensor(0.0)
        low, high = torch.minimum(numbers.min(), none), torch.maximum(numbers.max(), none)
        scale = (high - low) / 255
        zero = torch.round((-low / scale).clamp(0, 255))
        place = numbers / scale
        whole = torch.round(place)
        self.margin = min(self.margin, float((0.5 - (place - whole).abs()).min()))
        real = ((whole + zero).clamp(0, 255) - zero).double() * scale.double()
        return x + (real - x).detach()

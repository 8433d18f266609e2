"""Small decoders with a key/value cache, as onnxruntime-genai's builder and optimum lay them out.

A layer is a norm, projections, attention over past and new keys, and what is added to its input.
`fused`: GroupQueryAttention of com.microsoft, with rotary inside and lengths from the mask;
`joined`: a Concat along the sequence, and attention in plain operators; `merged`: the same in one
branch of an If, beside a branch without a cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CONTRIB = "com.microsoft"
HEAD, WORDS, MOST = 16, 11, 32  # size of a head, vocabulary, rows of the tables of angles
AXIS = "constants/[1]"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@dataclass(frozen=True)
class Options:
    """The form of a decoder; `window`, `softcap`, `rotary`, `packed`, `norms` are of a fused one.

    `names` are of the caches before and after, `{n}` by layer, `{kind}` key or value.  A `flat`
    mask of a joined one is picked from by indices of examples and places, these from `start` on.
    `alone`: a cache goes through a Concat of its own first, as transformers' cache is traced.
    """

    form: str = "fused"
    layers: int = 2
    heads: int = 2
    groups: int = 1
    packed: bool = False
    rotary: bool = True
    norms: bool = False
    window: int = -1
    softcap: float = 0.0
    names: tuple[str, str] = ("past_key_values.{n}.{kind}", "present.{n}.{kind}")
    total: str = "total_sequence_length"
    attributes: dict[str, Any] = field(default_factory=dict)
    flat: bool = False
    start: str = "zero"
    words: int = WORDS
    most: int = MOST
    alone: bool = False


@dataclass
class Decoder:
    """A decoder that is being written, its weights drawn by a seed."""

    options: Options
    seed: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)
        self.count = 0

    def emit(self, op: str, *inputs: str, outputs: int | list[str] = 1, **given: Any) -> Any:
        """A node, by its first output where that is the only one."""
        self.count += 1
        name = f"{op}_{self.count}"
        names = outputs if isinstance(outputs, list) else [f"{name}:{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name, **given))
        return names[0] if len(names) == 1 else names

    def weight(self, name: str, *shape: int, around: float = 0.0) -> str:
        drawn = 0.4 * self.draw.standard_normal(shape) + around
        self.weights.setdefault(name, drawn.astype(np.float32))
        return name

    def integers(self, *numbers: int) -> str:
        name = f"n{'_'.join(map(str, numbers))}"
        self.weights.setdefault(name, np.array(numbers, np.int64))
        return name

    @contextmanager
    def branch(self, name: str, into: dict[str, onnx.GraphProto], results: list[str]) -> Iterator:
        """Emit nodes into a branch that returns `results`, which are filled meanwhile."""
        outer, self.nodes = self.nodes, []
        yield
        returned = [helper.make_tensor_value_info(n, FLOAT, None) for n in results]
        into[name] = helper.make_graph(self.nodes, name, [], returned)
        self.nodes = outer

    # ---------------------------------------------------------------------- layers

    def body(self, after: list[str], *, past: bool, tag: str = "") -> str:
        """The hidden state after all layers; names of grown caches are appended to `after`."""
        h = self.emit("Gather", self.weight("embed", self.options.words, self.width), "input_ids")
        for layer in range(self.options.layers):
            x = self.emit(
                "SimplifiedLayerNormalization", h,
                self.weight(f"norm.{layer}", self.width, around=1), epsilon=1e-6, axis=-1,
            )  # fmt: skip
            attend = self.fused if self.options.form == "fused" else self.joined
            y = attend(layer, x, after, past=past, tag=tag)
            out = self.emit("MatMul", y, self.weight(f"out.{layer}", self.width, self.width))
            h = self.emit("Add", h, out)
        return h

    @property
    def width(self) -> int:
        return self.options.heads * HEAD

    def projected(self, layer: int, x: str) -> list[str]:
        """Queries, keys and values `[batch, sequence, heads · size]`."""
        groups = self.options.groups * HEAD
        sizes = {"q": self.width, "k": groups, "v": groups}
        return [
            self.emit("MatMul", x, self.weight(f"{kind}.{layer}", self.width, size))
            for kind, size in sizes.items()
        ]

    def cached(self, layer: int) -> tuple[list[str], list[str]]:
        """The names of the caches of a layer, before and after."""
        kinds = ("key", "value")
        before, after = self.options.names
        return tuple([each.format(n=layer, kind=k) for k in kinds] for each in (before, after))

    def fused(self, layer: int, x: str, after: list[str], **_: Any) -> str:
        o = self.options
        packed = self.width + 2 * o.groups * HEAD
        if o.packed:
            qkv = self.emit("MatMul", x, self.weight(f"qkv.{layer}", self.width, packed))
            q, k, v = qkv, "", ""
        else:
            q, k, v = self.projected(layer, x)
        past, now = self.cached(layer)
        after += now
        tables = ["cos", "sin"] if o.rotary else ["", ""]
        norms = [self.weight(f"norm_{c}.{layer}", HEAD, around=1) for c in "qk"] if o.norms else []
        y, *_ = self.emit(
            "GroupQueryAttention", q, k, v, *past, "lengths", "total", *tables,
            *([*[""] * 5, *norms] if o.norms else []), outputs=[f"attended.{layer}", *now],
            domain=CONTRIB, num_heads=o.heads, kv_num_heads=o.groups, do_rotary=int(o.rotary),
            local_window_size=o.window, softcap=o.softcap, **o.attributes,
        )  # fmt: skip
        return y

    def joined(self, layer: int, x: str, after: list[str], *, past: bool, tag: str) -> str:
        o = self.options
        before, now = self.cached(layer)
        if past and o.alone:
            before = [self.emit("Concat", name, axis=-2) for name in before]
        q, *kv = (
            self.emit(
                "Transpose", self.emit("Reshape", each, self.integers(0, 0, -1, HEAD)),
                perm=[0, 2, 1, 3],
            )
            for each in self.projected(layer, x)
        )  # fmt: skip
        names = [f"{name}{tag}" for name in now]
        after += names
        k, v = (
            self.emit("Concat", old, new, axis=-2, outputs=[name])
            if past
            else self.emit("Identity", new, outputs=[name])
            for old, new, name in zip(before, kv, names, strict=True)
        )
        shape = self.emit("Concat", *(self.size(q, axis) for axis in range(3)),
                          self.integers(HEAD), axis=0)  # fmt: skip
        if o.groups != o.heads:  # repeat the keys of a group
            ones = self.integers(1, o.heads // o.groups, 1, 1)
            k, v = (self.emit("Tile", each, ones) for each in (k, v))
        scores = self.emit("MatMul", q, self.emit("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.emit("Add", self.emit("Mul", scores, self.scale()), self.bias(q, k))
        y = self.emit("MatMul", self.emit("Softmax", scores, axis=-1), v)
        y = self.emit("Transpose", self.emit("Reshape", y, shape), perm=[0, 2, 1, 3])
        return self.emit("Reshape", y, self.integers(0, 0, self.width))

    def scale(self) -> str:
        self.weights.setdefault("scale", np.array(HEAD**-0.5, np.float32))
        return "scale"

    def size(self, value: str, axis: int) -> str:
        return self.emit("Gather", self.emit("Shape", value), self.integers(axis))

    def bias(self, q: str, k: str) -> str:
        """-10⁴ where a key comes later than its query, or the mask hides it: `[b, 1, s, t]`."""
        self.weights.setdefault("zero", np.array(0, np.int64))
        self.weights.setdefault("one", np.array(1, np.int64))
        s, t = (self.emit("Squeeze", self.size(x, 2), self.integers(0)) for x in (q, k))
        place = self.emit("Unsqueeze", self.emit("Range", self.emit("Sub", t, s), t, "one"),
                          self.integers(1))  # fmt: skip
        late = self.emit("Greater", self.emit("Range", "zero", t, "one"), place)
        late = self.emit("Unsqueeze", late, self.integers(0, 1))
        kept = self.emit("Cast", "attention_mask", to=TensorProto.BOOL)
        if self.options.flat:
            kept = self.picked(kept)
        else:
            kept = self.emit("Unsqueeze", kept, self.integers(1, 2))
        shown = self.emit("And", kept, self.emit("Not", late))
        self.weights.setdefault("shown", np.array(0, np.float32))
        self.weights.setdefault("hidden", np.array(-1e4, np.float32))
        return self.emit("Where", shown, "shown", "hidden")

    def picked(self, mask: str) -> str:
        """`mask[example, place]`, as TorchScript writes it: `[b, 1, 1, t]` of the flattened one."""
        b, t = (
            self.emit("Squeeze", self.size("attention_mask", axis), self.integers(0))
            for axis in (0, 1)
        )
        numbers = self.emit("Unsqueeze", self.emit("Range", "zero", b, "one"),
                            self.integers(1, 2, 3))  # fmt: skip
        first = self.emit("Mul", numbers, t)
        index = self.emit("Add", first, self.emit("Range", self.options.start, t, "one"))
        return self.emit("Gather", self.emit("Reshape", mask, self.integers(-1)), index)

    def lengths(self) -> None:
        """`lengths` and `total` of the mask, as the builder computes them."""
        one = numpy_helper.from_array(np.array([1], np.int64))
        self.emit("Constant", value=one, outputs=[AXIS])
        total = self.emit("ReduceSum", "attention_mask", AXIS, keepdims=0)
        less = self.emit("Sub", total, AXIS)
        self.emit("Cast", less, to=TensorProto.INT32, outputs=["lengths"])
        size = self.emit("Gather", self.emit("Shape", "attention_mask"), "one", axis=0)
        self.weights.setdefault("one", np.array(1, np.int64))
        self.emit("Cast", size, to=TensorProto.INT32, outputs=["total"])


def decoder(options: Options = Options(), seed: int = 0) -> onnx.ModelProto:
    """The model of a decoder."""
    made, o = Decoder(options, seed), options
    after: list[str] = []
    caches = [made.cached(layer) for layer in range(o.layers)]
    if o.form == "fused":
        made.lengths()
        if o.rotary:
            angle = np.outer(np.arange(o.most), 10.0 ** -np.arange(HEAD // 2))
            made.weights |= {"cos": np.cos(angle).astype("f"), "sin": np.sin(angle).astype("f")}
    if o.form == "merged":
        branches: dict[str, onnx.GraphProto] = {}
        for name, past in (("then_branch", True), ("else_branch", False)):
            results: list[str] = []
            with made.branch(name, branches, results):
                grown: list[str] = []
                results.append(made.body(grown, past=past, tag=f"/{name}"))
                results += grown
        after = [name for _, now in caches for name in now]
        made.emit("If", "use_cache_branch", outputs=["hidden_state", *after], **branches)
        h = "hidden_state"
    else:
        h = made.body(after, past=True)
    made.emit("MatMul", h, made.weight("head", made.width, o.words), outputs=["logits"])
    before = [helper.make_tensor_value_info(
        name, FLOAT, ["batch", o.groups, "past_sequence_length", "cache_size"])
        for past, _ in caches for name in past]  # fmt: skip
    inputs = [
        helper.make_tensor_value_info("input_ids", INT64, ["batch", "sequence_length"]),
        helper.make_tensor_value_info("attention_mask", INT64, ["batch", o.total]),
        *before,
    ]
    if o.form == "merged":
        inputs.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
    outputs = [
        helper.make_tensor_value_info("logits", FLOAT, ["batch", "sequence_length", o.words])
    ]
    outputs += [helper.make_tensor_value_info(n, FLOAT, ["batch", o.groups, o.total, "cache_size"])
                for n in after]  # fmt: skip
    held = [numpy_helper.from_array(array, name) for name, array in made.weights.items()]
    graph = helper.make_graph(made.nodes, "decoder", inputs, outputs, held)
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 20), helper.make_opsetid(CONTRIB, 1)])  # fmt: skip
    if o.form == "fused":  # as the builder declares it: onnxruntime does not mind
        model.graph.value_info.append(helper.make_tensor_value_info(AXIS, INT64, []))
    return model


def feeds(options: Options, batch: int = 2, length: int = 5, past: int = 0) -> dict[str, Any]:
    """Tokens, a mask that hides nothing, and a drawn cache of a length."""
    draw = np.random.default_rng(1)
    found: dict[str, Any] = {
        "input_ids": draw.integers(0, WORDS, (batch, length)),
        "attention_mask": np.ones((batch, past + length), np.int64),
    }
    shape = (batch, options.groups, past, HEAD)
    for layer in range(options.layers):
        for name in Decoder(options).cached(layer)[0]:
            found[name] = draw.standard_normal(shape).astype(np.float32)
    return found | ({"use_cache_branch": np.array([past > 0])} if options.form == "merged" else {})

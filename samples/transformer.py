"""A causal decoder of bytes, normalised before each block, its attention written out."""

from __future__ import annotations

import math

import onnx
from network import FLOAT, INT64, Network

LAYERS, WIDTH, HEADS, FEED, CONTEXT, BYTES = 2, 64, 4, 128, 32, 256


def model() -> onnx.ModelProto:
    """`tokens` int64[batch, 32] → `logits` float[batch, 32, 256]."""
    net = Network("transformer", seed=2)
    tokens = net.input("tokens", INT64, ["batch", CONTEXT])
    net.output("logits", ["batch", CONTEXT, BYTES])

    table = net.weight("embed.tokens.weight", (BYTES, WIDTH), fan_in=WIDTH)
    places = net.weight("embed.positions.weight", (CONTEXT, WIDTH), fan_in=WIDTH)
    x = net.op("Gather", "embed.tokens", table, tokens)
    position = net.op("Gather", "embed.positions", places, net.integers("where", range(CONTEXT)))
    x = net.op("Add", "embed.add", x, position)

    mask = causal_mask(net)
    for layer in range(LAYERS):
        x = decoder(net, f"layer{layer}", x, mask)

    x = layer_norm(net, "norm", x)
    tied = net.op("Transpose", "head.weight", table, perm=[1, 0])
    net.node("MatMul", "head", [x, tied], ["logits"])
    return net.model()


def causal_mask(net: Network) -> str:
    """0 where a position may look, -1e9 above the diagonal; [CONTEXT, CONTEXT]."""
    shape = net.integers("mask.shape", [CONTEXT, CONTEXT])
    minus = onnx.helper.make_tensor("minus", FLOAT, [1], [-1e9])
    full = net.op("ConstantOfShape", "mask.full", shape, value=minus)
    return net.op("Trilu", "mask", full, net.integers("mask.diagonal", 1), upper=1)


def decoder(net: Network, name: str, x: str, mask: str) -> str:
    """`x + attention(norm(x))`, then `x + mlp(norm(x))`."""
    y = layer_norm(net, f"{name}.norm1", x)
    y = attention(net, f"{name}.attention", y, mask)
    x = net.op("Add", f"{name}.add1", x, y)

    y = layer_norm(net, f"{name}.norm2", x)
    y = linear(net, f"{name}.mlp.up", y, WIDTH, FEED)
    y = net.op("Gelu", f"{name}.mlp.gelu", y)
    y = linear(net, f"{name}.mlp.down", y, FEED, WIDTH)
    return net.op("Add", f"{name}.add2", x, y)


def attention(net: Network, name: str, x: str, mask: str) -> str:
    """`softmax(q kᵀ / √d + mask) v` for each head; q, k and v come from one product."""
    head = WIDTH // HEADS
    qkv = linear(net, f"{name}.qkv", x, WIDTH, 3 * WIDTH)
    parts = [f"{name}.{part}" for part in "qkv"]
    net.node("Split", f"{name}.split", [qkv], parts, axis=-1, num_outputs=3)

    apart = net.integers(f"{name}.apart", [0, 0, HEADS, head])  # batch, context, head, d
    q, k, v = (net.op("Reshape", f"{part}.reshape", part, apart) for part in parts)
    q = net.op("Transpose", f"{name}.q.transpose", q, perm=[0, 2, 1, 3])
    k = net.op("Transpose", f"{name}.k.transpose", k, perm=[0, 2, 3, 1])
    v = net.op("Transpose", f"{name}.v.transpose", v, perm=[0, 2, 1, 3])

    q = net.op("Mul", f"{name}.scale", q, net.scalar(f"{name}.factor", 1 / math.sqrt(head)))
    scores = net.op("Add", f"{name}.mask", net.op("MatMul", f"{name}.scores", q, k), mask)
    weights = net.op("Softmax", f"{name}.softmax", scores, axis=-1)
    y = net.op("MatMul", f"{name}.mix", weights, v)

    y = net.op("Transpose", f"{name}.transpose", y, perm=[0, 2, 1, 3])
    y = net.op("Reshape", f"{name}.reshape", y, net.integers(f"{name}.joined", [0, 0, WIDTH]))
    return linear(net, f"{name}.project", y, WIDTH, WIDTH)


def linear(net: Network, name: str, x: str, narrow: int, wide: int) -> str:
    """`x @ weight + bias` over the last axis."""
    weight = net.weight(f"{name}.weight", (narrow, wide), fan_in=narrow)
    y = net.op("MatMul", name, x, weight)
    return net.op("Add", f"{name}.add", y, net.zeros(f"{name}.bias", (wide,)))


def layer_norm(net: Network, name: str, x: str) -> str:
    weight, bias = net.ones(f"{name}.weight", (WIDTH,)), net.zeros(f"{name}.bias", (WIDTH,))
    return net.op("LayerNormalization", name, x, weight, bias, axis=-1)

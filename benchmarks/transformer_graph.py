"""A training graph of a transformer as a planning instance: as many nodes as asked for.

    python benchmarks/transformer_graph.py FILE.json [--layers 378] [--width 1024] [--tokens 8192]

Nodes are operators: bytes of their output in float16, cost in FLOPs.  Weight gradients are sinks,
as in the instances of the literature.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from instances import program_of

from gradtool.planning.simulate import Simulator


class Graph:
    """Nodes in order with the nodes that they read."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[tuple[int, int]] = []
        self.gradients: list[tuple[int, tuple[int, ...], int, str]] = []

    def add(self, size: int, cost: int, *reads: int, backward: bool = False) -> int:
        """A node of `size` bytes that reads others; its number."""
        node = len(self.nodes)
        self.nodes.append({"bytes": size, "cost": cost, "backward": backward})
        self.edges += [(source, node) for source in dict.fromkeys(reads)]
        return node

    def forward(self, kind: str, size: int, cost: int, *reads: int) -> int:
        """A forward node; its gradient is of kind `linear`, `product`, `sum`, `input` or `output`.

        They read: the input; both inputs; nothing; the input; the output.
        """
        node = self.add(size, cost, *reads)
        self.gradients.append((node, reads, cost, kind))
        return node

    def backward(self, loss: int) -> None:
        """Gradients of all forward nodes, last first; contributions are added where they arrive."""
        arriving = {loss: self.add(4, 1, loss, backward=True)}
        for node, reads, cost, kind in reversed(self.gradients):
            dy = arriving.pop(node)
            for source in dict.fromkeys(reads):
                kept = {"linear": (), "sum": (), "output": (node,), "input": (source,)}
                others = kept.get(kind, tuple(r for r in reads if r != source))
                size = self.nodes[source]["bytes"]
                dx = dy if kind == "sum" else self.add(size, cost, dy, *others, backward=True)
                if source in arriving:
                    dx = self.add(size, size // 2, arriving[source], dx, backward=True)
                arriving[source] = dx
            if kind == "linear":
                self.add(16, cost, dy, *reads, backward=True)


def block(graph: Graph, x: int, width: int, tokens: int, length: int) -> int:
    """One layer: attention and a feed-forward network, each behind a norm and beside a sum."""
    flat, heads = 2 * tokens * width, max(width // 64, 1)
    scores = 2 * tokens * length * heads
    linear = 2 * tokens * width * width

    def norm(value: int) -> int:
        centred = graph.forward("sum", flat, flat, value)
        scale = graph.forward("input", 2 * tokens, flat, centred)
        return graph.forward(
            "input", flat, flat, graph.forward("product", flat, flat, centred, scale)
        )

    n = norm(x)
    q, k, v = (graph.forward("linear", flat, linear, n) for _ in range(3))
    logits = graph.forward("product", scores, 2 * tokens * length * width, q, k)
    scaled = graph.forward("sum", scores, scores // 2, logits)
    weights = graph.forward("output", scores, 5 * scores // 2, scaled)
    mixed = graph.forward("product", flat, 2 * tokens * length * width, weights, v)
    x = graph.forward("sum", flat, flat // 2, x, graph.forward("linear", flat, linear, mixed))
    h = graph.forward("linear", 4 * flat, 4 * linear, norm(x))
    h = graph.forward("input", 4 * flat, 16 * flat, h)
    return graph.forward("sum", flat, flat // 2, x, graph.forward("linear", flat, 4 * linear, h))


def transformer(layers: int, width: int, tokens: int, length: int) -> dict[str, Any]:
    """The instance: `nodes`, `edges`, and the peak of the nodes in their order."""
    graph = Graph()
    x = graph.forward("linear", 2 * tokens * width, tokens * width, graph.add(8 * tokens, 0))
    for _ in range(layers):
        x = block(graph, x, width, tokens, length)
    loss = graph.forward("linear", 4, tokens * width, x)
    graph.backward(loss)
    peak = Simulator(program_of(graph.nodes, graph.edges)).peak(range(len(graph.nodes)))
    return {
        "name": "transformer",
        "peak_bytes_in_order": peak,
        "nodes": graph.nodes,
        "edges": graph.edges,
    }


def main() -> None:
    """Write the instance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--layers", type=int, default=378)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--length", type=int, default=512)
    a = parser.parse_args()
    instance = transformer(a.layers, a.width, a.tokens, a.length)
    a.file.write_text(json.dumps(instance), encoding="utf-8")
    print(f"{len(instance['nodes'])} nodes, {len(instance['edges'])} edges")


if __name__ == "__main__":
    main()

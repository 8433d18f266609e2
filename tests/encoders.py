"""A training graph that narrows and widens: most of its gradients read what is far away."""

from __future__ import annotations

from instances import program_of


def encoder_decoder():
    """A chain that narrows and widens again, with gradients that read what each step read."""
    sizes = [64, 64, 64, 32, 32, 32, 8, 8, 8, 32, 32, 32, 64, 64, 64]
    nodes = [{"bytes": b, "cost": b * (1 + i % 3)} for i, b in enumerate(sizes)]
    edges = [(i, i + 1) for i in range(len(sizes) - 1)]
    for i in reversed(range(1, len(sizes))):
        nodes.append({"bytes": sizes[i - 1], "cost": 2 * sizes[i], "backward": True})
        last = len(nodes) - 1
        edges += [(last - 1, last), (i - 1, last)] + ([] if i == last - 1 else [(i, last)])
    return program_of(nodes, edges)

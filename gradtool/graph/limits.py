"""Limits of the size of a model, beyond which it is refused."""

from __future__ import annotations

from dataclasses import dataclass

# Longer vectors hold data, not sizes.
MOST_ELEMENTS = 4096


@dataclass(frozen=True)
class Limits:
    """The limits of a file. Names in `_bytes` are bytes; the rest are counts.

    `constant_bytes` bounds a value that depends on no input and no stored tensor of its size.
    `turns` and `dynamic_bytes` bound one step of a run: the turns of all its loops, and the bytes
    of values whose sizes depend on data (as much as its plan, where that is more).
    """

    file_bytes: int = 2**31 - 1
    tensor_bytes: int = 2**40
    value_bytes: int = 2**40
    constant_bytes: int = 2**30
    nodes: int = 5_000_000
    # Nodes after inlining: at most `expansion` times those written, beyond the free ones.
    expanded_nodes: int = 1_000_000
    free_nodes: int = 20_000
    expansion: int = 50
    call_depth: int = 128
    nesting: int = 32
    rank: int = 64
    symbol_length: int = 200
    symbols: int = 1_000
    turns: int = 20_000
    dynamic_bytes: int = 2**29


DEFAULT = Limits()

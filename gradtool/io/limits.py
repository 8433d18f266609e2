"""How large a model may be before reading it is refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a file may ask for. Names in `_bytes` are bytes; the rest are counts.

    `constant_bytes` bounds a value that depends on no input and no stored tensor of its size.
    """

    file_bytes: int = 2**31 - 1
    tensor_bytes: int = 2**40
    value_bytes: int = 2**40
    constant_bytes: int = 2**32
    nodes: int = 5_000_000
    # Nodes after inlining: at most `expansion` times those written, beyond the free ones.
    expanded_nodes: int = 1_000_000
    free_nodes: int = 20_000
    expansion: int = 50
    call_depth: int = 128
    nesting: int = 32
    rank: int = 64
    symbol_length: int = 200


DEFAULT = Limits()

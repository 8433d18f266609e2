"""How large a model may be before reading it is refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a file may ask for. Sizes in bytes; the rest are counts."""

    file_bytes: int = 2**31 - 1
    tensor_bytes: int = 2**40
    value_bytes: int = 2**44
    constant_bytes: int = 2**32
    nodes: int = 5_000_000
    expanded_nodes: int = 1_000_000
    call_depth: int = 128
    nesting: int = 32
    rank: int = 64
    symbol_length: int = 200


DEFAULT = Limits()

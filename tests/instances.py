"""Planning instances of the rematerialisation literature, as programs.

An instance is JSON: `{"nodes": [{"bytes", "cost", "backward"?}], "edges": [[u, v], …]}`.  Node i is
the i-th step of the given order and has one output; sinks are computed and die at once.

Source: the form is that of the graphs of Checkmate (Jain et al. 2020, arXiv:1910.02653) and of
Moccasin (Bartan et al. 2023, arXiv:2304.14463).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.graph.specs import Spec
from gradtool.program import Program, Step, Value

_BYTE = np.dtype(np.uint8)


def read(path: str | Path) -> Program:
    """The program of an instance; `Step.flops` is the cost of a node, sizes are not rounded.

    Raises:
        UsageError: the file is missing or is no such instance.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        return program_of(document["nodes"], document["edges"])
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise UsageError(f"{path}: is no planning instance: {error}") from error


def program_of(nodes: Sequence[Mapping[str, Any]], edges: Sequence[Sequence[int]]) -> Program:
    """The program of `nodes` (bytes, cost, perhaps backward) and `edges` from node to reader."""
    inputs: list[list[int]] = [[] for _ in nodes]
    for source, reader in edges:
        if not 0 <= source < reader < len(nodes):
            raise ValueError(f"the edge {source} -> {reader} does not go forward")
        inputs[reader].append(source)
    values = [
        Value(f"v{i}", Spec((int(node["bytes"]),), _BYTE), "activation")
        for i, node in enumerate(nodes)
    ]
    steps = [
        Step(
            name=f"n{i}",
            op="Node",
            inputs=tuple(dict.fromkeys(inputs[i])),
            outputs=(i,),
            attributes=MappingProxyType({}),
            stage="backward" if node.get("backward") else "forward",
            flops=int(node["cost"]),
        )
        for i, node in enumerate(nodes)
    ]
    return Program(tuple(values), tuple(steps), (), (), MappingProxyType({}), alignment=1)

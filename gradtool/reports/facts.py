"""Facts of an operator beside its rule and its kernel, for the table of operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal

from gradtool.graph.composites import DOMAIN
from gradtool.graph.families import split_name
from gradtool.ops import traits
from gradtool.ops.kernels import Kernel
from gradtool.ops.traits import Runs

ONNXRUNTIME = "1.31"
ITS_DOMAINS = ("", "ai.onnx.ml", "com.microsoft")

_GROUPS = {
    "float": ("float16", "bfloat16", "float", "double"),
    "int": ("int8", "int16", "int32", "int64"),
    "uint": ("uint8", "uint16", "uint32", "uint64"),
    "complex": ("complex64", "complex128"),
    "float8": ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"),
    "4 bits": ("int4", "uint4"),
}


def onnxruntime(name: str) -> Runs:
    """Whether stock onnxruntime runs an operator on the CPU, by a kernel or by its body."""
    domain, _ = split_name(name)
    if domain == DOMAIN:
        return "body"
    return traits.of(name).onnxruntime if domain in ITS_DOMAINS else "no"


def cuda(found: Sequence[Kernel]) -> Literal["cupy", "host", "no"]:
    """Whether kernels work on the arrays of a device, or on the host only."""
    if not found:
        return "no"
    return "cupy" if all(kernel.on_device for kernel in found) else "host"


def opsets(name: str) -> tuple[int, ...]:
    """The opsets with a new definition of an operator."""
    return tuple(sorted(_history().get(split_name(name), ())))


@cache
def _history() -> dict[tuple[str, str], set[int]]:
    import onnx

    found: dict[tuple[str, str], set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    return found


def types(name: str) -> str:
    """The types allowed by the standard for the first input, or for the output if there is none.

    `float` stands for all of float16, bfloat16, float32 and float64; `int` and `uint` likewise.
    """
    import onnx

    domain, op = split_name(name)
    try:
        schema = onnx.defs.get_schema(op, domain=domain)
    except onnx.defs.SchemaError:
        return "float" if domain == DOMAIN else ""
    formal = (*schema.inputs, *schema.outputs)
    tensors = [t for t in sorted(formal[0].types) if t.startswith("tensor(")]
    return _grouped([t[len("tensor(") : -1] for t in tensors]) if tensors else "sequence"


def _grouped(names: list[str]) -> str:
    rest = list(names)
    words = []
    for group, members in _GROUPS.items():
        there = [m for m in members if m in rest]
        rest = [n for n in rest if n not in members]
        if len(there) == len(members):
            words.append(group)
        else:
            words += [{"float": "float32", "double": "float64"}.get(m, m) for m in there]
    return ", ".join([*words, *rest])

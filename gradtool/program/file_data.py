"""Initializers whose data lies in a file beside the model: read later, or never copied."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.io.file_tensors import SMALL, FileTensor
from gradtool.program.kinds import Kinds


def comes_later(value: ir.Value, kinds: Kinds, *, is_main: bool) -> bool:
    """Whether data is absent, or large and in a file: then no program holds it."""
    tensor = value.const_value
    if getattr(tensor, "absent", False):
        return True
    is_large = isinstance(tensor, FileTensor) and tensor.nbytes > SMALL
    return is_large and is_main and not kinds.is_read_on_host(value)


def stays_in_file(value: ir.Value, kinds: Kinds) -> bool:
    """Whether kernels could read an initializer of the main graph where it lies in a file."""
    tensor = value.const_value
    return (
        isinstance(tensor, FileTensor)
        and tensor.is_mappable
        and not kinds.may_change(value)
        and not kinds.is_read_on_host(value)
        and not value.is_graph_output()
    )

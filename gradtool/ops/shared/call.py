"""One kernel call on arrays at hand, with memory taken as it comes.

The arena executor binds kernels beforehand instead; this is for values whose shape depends on
data, and for trying a kernel by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import Kernel


def spec_of(array: Any) -> Spec:
    """Shape and type of an array."""
    return Spec(tuple(array.shape), array.dtype)


def results(
    xp: Any,
    kernel: Kernel,
    inputs: Sequence[Any],
    out: Sequence[Spec | None],
    attributes: Mapping[str, Any],
) -> Sequence[Any]:
    """Outputs of a kernel, by the specs `out` unless it chooses sizes and types."""
    if kernel.chooses:
        function = kernel.dynamic or kernel.function
        made = function(xp, *inputs, **attributes)
        return made if isinstance(made, tuple) else (made,)
    return call(xp, kernel, inputs, out, attributes)


def call(
    xp: Any,
    kernel: Kernel,
    inputs: Sequence[Any],
    out: Sequence[Spec | None],
    attributes: Mapping[str, Any],
) -> list[Any]:
    """The outputs of one call, freshly allocated; None where `out` is None."""
    if kernel.allocating:
        made = kernel.function(xp, *inputs, **attributes)
        made = made if isinstance(made, tuple) else (made,)
        return [
            m if s is None else xp.asarray(m, s.dtype, order="C")
            for m, s in zip(made, out, strict=False)
        ]
    specs = [
        array if array is None or slot in kernel.host else spec_of(array)
        for slot, array in enumerate(inputs)
    ]
    written = [None if s is None else xp.empty(s.shape, s.dtype) for s in out]
    work = [xp.empty(s.shape, s.dtype) for s in kernel.workspace(specs, out, attributes)]
    kernel.function(xp, *inputs, **kernel.buffers(written, work), **attributes)
    return written

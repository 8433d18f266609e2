"""Half precision by way of float32: for kernels whose arithmetic is in one type throughout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtool.graph.declarations import ask
from gradtool.graph.specs import Spec
from gradtool.ops.kernels import Function
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array, Arrays, Specs


def wide_specs(values: Sequence[Array | Spec | None]) -> list[Spec | None]:
    """The specs of upcast `values`: half precision becomes float32."""
    return [
        v if v is None or accumulator(v.dtype) == v.dtype or v.dtype.kind in "iub"
        else Spec(tuple(v.shape), np.dtype(np.float32))
        for v in values
    ]  # fmt: skip


def widened(
    function: Function, work: Callable[..., Specs]
) -> tuple[Function, Callable[..., Specs]]:
    """`(function, work)` of a kernel that computes half-precision operands in float32."""

    def needs(x: Array | Spec) -> bool:
        return bool(accumulator(x.dtype) != x.dtype)

    def wide_work(
        *inputs: Spec | Array, out: Sequence[Spec | None], **attributes: Any
    ) -> list[Spec]:
        if not needs(inputs[0]):
            return list(ask(work, inputs, out, attributes))
        given, results = wide_specs(inputs), wide_specs(out)
        pairs = zip((*given, *results), (*inputs, *out), strict=True)
        copies = [w for w, v in pairs if w is not None and w is not v]
        return [*copies, *ask(work, given, results, attributes)]

    def run(xp: Any, *inputs: Array, out: Arrays, work: Arrays, **attributes: Any) -> None:
        """Call the kernel, on copies in float32 where its inputs are half precision."""
        if not needs(inputs[0]):
            function(xp, *inputs, out=out, work=work, **attributes)
            return
        scratch = list(work)
        given = [
            scratch.pop(0) if w is not v else v
            for w, v in zip(wide_specs(inputs), inputs, strict=True)
        ]
        results = [
            scratch.pop(0) if w is not v else v for w, v in zip(wide_specs(out), out, strict=True)
        ]
        for wide, narrow in zip(given, inputs, strict=True):
            if wide is not narrow:
                xp.copyto(wide, narrow)
        function(xp, *given, out=results, work=scratch, **attributes)
        for wide, narrow in zip(results, out, strict=True):
            if wide is not narrow:
                xp.copyto(narrow, wide, casting="unsafe")

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return run, wide_work

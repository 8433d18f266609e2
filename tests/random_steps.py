"""Random small programs of steps with several outputs, some of which may run only once."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st

from gradtool.graph.specs import Spec
from gradtool.program import Program, Step, Value

BYTE = np.dtype(np.uint8)


@st.composite
def steps(draw, most=6):
    """A program of small sizes and costs, with workspaces, in-place steps and several outputs."""
    values, made, outputs = [], [], []
    for index in range(draw(st.integers(3, most))):
        far = [v for v in range(len(values) - 1) if draw(st.integers(0, 3)) == 0][:2]
        reads = list(dict.fromkeys([*far, *([len(values) - 1] if values else [])]))
        first = len(values)
        for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
            size = draw(st.sampled_from([1, 2, 3, 5]))
            values.append(Value(f"v{len(values)}", Spec((size,), BYTE), "activation"))
        if draw(st.integers(0, 9)) == 0:
            outputs.append(first)
        made.append(
            Step(
                name=f"s{index}",
                op="Node",
                inputs=tuple(reads),
                outputs=tuple(range(first, len(values))),
                attributes=MappingProxyType({}),
                workspace=(Spec((draw(st.sampled_from([0, 0, 1])),), BYTE),),
                may_inplace=(0,) if draw(st.integers(0, 2)) == 0 else (),
                recomputable=draw(st.integers(0, 9)) > 0,
                flops=draw(st.sampled_from([0, 1, 2, 3, 5, 7, 9, None])),
            )
        )
    return Program(
        tuple(values), tuple(made), (), tuple(outputs), MappingProxyType({}), alignment=1
    )

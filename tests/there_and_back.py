"""Random small training graphs: a chain of steps, and one that goes back and reads what it made."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st

from gradtool.graph.specs import Spec
from gradtool.program import Program, Step, Value

BYTE = np.dtype(np.uint8)


@st.composite
def there_and_back(draw, most=4):
    """Of a chain forward and one back; side steps give results that stay, or that nobody reads."""
    values, made, outputs = [], [], []

    def step(reads):
        values.append(Value(f"v{len(values)}", Spec((draw(st.sampled_from([1, 2, 3, 5])),), BYTE),
                            "activation"))  # fmt: skip
        made.append(
            Step(
                name=f"s{len(made)}",
                op="Node",
                inputs=tuple(dict.fromkeys(reads)),
                outputs=(len(values) - 1,),
                attributes=MappingProxyType({}),
                workspace=(Spec((draw(st.sampled_from([0, 0, 1])),), BYTE),),
                may_inplace=(0,) if draw(st.integers(0, 3)) == 0 else (),
                recomputable=draw(st.integers(0, 9)) > 0,
                flops=draw(st.sampled_from([0, 1, 2, 5])),
            )
        )
        return len(values) - 1

    chain = [step([])]
    for _ in range(draw(st.integers(1, most - 1))):
        chain.append(step([chain[-1]]))
    back = chain[-1]
    for place in range(len(chain) - 1, -1, -1):
        reads = [v for v in chain[max(place - 1, 0) : place + 1] if draw(st.integers(0, 2))]
        if len(made) < 2 * most and draw(st.integers(0, 3)) == 0:
            side = step([back, *reads[:1]])
            outputs += [side] if draw(st.booleans()) else []
        back = step([back, *reads])
    return Program(
        tuple(values), tuple(made), (), tuple(outputs), MappingProxyType({}), alignment=1
    )

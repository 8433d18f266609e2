"""Formulas by blocks, written over what they read, give the bits of whole arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtool.graph.specs import Spec
from gradtool.operators.updates import UPDATES
from gradtool.ops.kernels import find
from gradtool.ops.shared.sums import BLOCK

OPTIONS = {
    "MomentumUpdate": [{"nesterov": 0}, {"nesterov": 1}],
    "MuonDirection": [{"nesterov": 0}, {"nesterov": 1}],
    "RmspropUpdate": [{"epsilon": 1e-3, "centered": c} for c in (0, 1)],
}
SIZES = (0, 1, 7, BLOCK, 2 * BLOCK + 3)


class Whole:
    """The operators of formulas, on whole arrays."""

    Max, Min, Sign, Sqrt = (staticmethod(f) for f in (np.maximum, np.minimum, np.sign, np.sqrt))


def call(name, update, inputs, options, wanted, over):
    """The outputs of a kernel, some of them in the place of what it reads."""
    kernel = find("ai.gradtool", name, 1)
    given = [None if i is None else i.copy() for i in inputs]
    out = []
    for k, want in enumerate(wanted):
        slots = update.replaced(k)
        free = [s for s in slots if given[s] is not None]
        shared = over and free
        out.append(None if not want else given[free[-1]] if shared else np.empty_like(inputs[0]))
    specs = [None if i is None else Spec(i.shape, i.dtype) for i in inputs]
    made = [None if o is None else Spec(o.shape, o.dtype) for o in out]
    work = [np.full(s.shape, np.nan, s.dtype) for s in kernel.workspace(specs, made, options)]
    kernel.function(np, *given, **kernel.buffers(out, work), **options)
    return out


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", UPDATES)
@given(data=st.data())
def test_every_block_is_that_of_the_whole(name, data):
    update = UPDATES[name]
    options = data.draw(st.sampled_from(OPTIONS.get(name, [{"epsilon": 1e-3}])))
    options = {} if name in ("SgdUpdate", "LionUpdate") else options
    size = data.draw(st.sampled_from(SIZES))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    optional = {"SgdUpdate": [3, 4], "MomentumUpdate": [3, 5], "AdamUpdate": [6, 7],
                "AdagradUpdate": [3], "RmspropUpdate": [4, 5], "LionUpdate": [5],
                "LambDirection": [6]}.get(name, [])  # fmt: skip
    numbers = range(update.tensors, update.tensors + update.numbers)
    absent = {slot for slot in optional if data.draw(st.booleans())}
    state = update.state
    if name == "RmspropUpdate":
        state = 1 + options["centered"] + (5 not in absent)
    inputs = [
        None if s in absent else np.float64(rng.random()).reshape(()) if s in numbers
        else np.abs(rng.standard_normal(size))
        for s in range(update.tensors + update.numbers + state)
    ]  # fmt: skip
    count = 1 + state
    wanted = [data.draw(st.booleans()) for _ in range(count)]
    wanted[data.draw(st.integers(0, count - 1))] = True
    with np.errstate(all="ignore"):
        expected = update.formula(Whole, *inputs, **options)
        found = call(name, update, inputs, options, wanted, data.draw(st.booleans()))

    for e, f, want in zip(expected, found, wanted, strict=True):
        if want:
            np.testing.assert_array_equal(f, e)

"""Windows: where a kernel says that its outputs lie, and what it would write."""

from __future__ import annotations

import numpy as np
import pytest
from cases import integers
from numpy.lib.stride_tricks import as_strided

from gradtool.graph.specs import Spec
from gradtool.ops import kernels as registry
from gradtool.ops.shape.kernel_views import reshaped
from gradtool.ops.shared.call import call, spec_of

X = np.arange(2 * 6 * 4, dtype=np.float64).reshape(2, 6, 4)
TURNED = X.transpose(2, 1, 0)
SPARSE = X[:, ::2]


def windows(op, x, others, shapes, **attributes):
    """What the kernel's windows show, and what the kernel writes."""
    kernel = registry.find("", op, 20)
    out = [Spec(s, x.dtype) for s in shapes]
    written = call(np, kernel, [x, *others], out, attributes)
    found = kernel.windows([spec_of(x), *others], x.strides, out, attributes)
    if found is None:
        return None, written
    flat = X.reshape(-1)
    shown = [
        as_strided(flat[offset // X.itemsize :], spec.shape, strides)
        for (offset, strides), spec in zip(found, out, strict=True)
    ]
    return shown, written


CASES = [
    ("Transpose", X, [], [(4, 2, 6)], {"perm": [2, 0, 1]}),
    ("Transpose", TURNED, [], [(2, 6, 4)], {}),
    ("Unsqueeze", X, [integers([1])], [(2, 1, 6, 4)], {}),
    ("Unsqueeze", SPARSE, [integers([-1])], [(2, 3, 4, 1)], {}),
    ("Squeeze", X.reshape(2, 1, 24), [None], [(2, 24)], {}),
    ("Reshape", X, [integers(2, 2, 3, 4)], [(2, 2, 3, 4)], {}),
    ("Reshape", TURNED, [integers(4, 2, 3, 2)], [(4, 2, 3, 2)], {}),
    ("Reshape", SPARSE, [integers(2, 3, 2, 2)], [(2, 3, 2, 2)], {}),
    ("Flatten", X, [], [(12, 4)], {"axis": 2}),
    ("Expand", SPARSE, [integers(3, 1)], [(2, 3, 4)], {}),
    ("Slice", X, [integers(1, 2), integers(6, 4), integers(1, 2), integers(2, 1)], [(2, 3, 2)], {}),
    ("Slice", TURNED, [integers([1]), integers([99]), integers([-1])], [(4, 6, 1)], {}),
    ("Slice", X, [integers([-9]), integers([1])], [(1, 6, 4)], {}),
    ("Slice", X, [integers([2]), integers([2])], [(0, 6, 4)], {}),
    ("Split", X, [integers(1, 3, 2)], [(2, 1, 4), (2, 3, 4), (2, 2, 4)], {"axis": 1}),
    ("Split", X[:, :5], [None], [(2, 3, 4), (2, 2, 4)], {"axis": 1, "num_outputs": 2}),
    ("Split", TURNED, [], [(2, 6, 2), (2, 6, 2)], {"num_outputs": 2}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[1].strides} {c[3]}")
def test_windows_show_what_the_kernel_writes(case):
    op, x, others, shapes, attributes = case
    shown, written = windows(op, x, others, shapes, **attributes)

    for mine, other in zip(shown, written, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_backward_slice_is_no_window():
    shown, _ = windows(
        "Slice", X, [integers([-1]), integers([-9]), integers([1]), integers([-1])], [(2, 6, 4)]
    )

    assert shown is None


def test_a_reshape_across_gaps_is_no_window():
    shown, written = windows("Reshape", SPARSE, [integers([24])], [(24,)])

    assert shown is None
    np.testing.assert_array_equal(written[0], SPARSE.reshape(24))


def test_reshapes_are_windows_exactly_where_numpy_says_so():
    rng = np.random.default_rng(0)
    shapes = [(24,), (4, 6), (2, 3, 4), (1, 24), (2, 1, 12)]
    for _ in range(500):
        x = np.arange(24).reshape(shapes[rng.integers(5)])
        x = x.transpose(rng.permutation(x.ndim))[: rng.choice([1, 2, 99])]
        new, size = [], x.size
        while size > 1:
            new.append(int(rng.choice([n for n in range(1, size + 1) if size % n == 0])))
            size //= new[-1]
        found = reshaped(x.shape, x.strides, tuple(new))
        expected = x.reshape(new)

        assert (found is None) == (not np.shares_memory(expected, x))
        if found is not None:
            np.testing.assert_array_equal(as_strided(x, expected.shape, found), expected)

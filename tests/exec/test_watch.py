"""What a watched step tells of arrays, wherever they lie."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from gradtool.exec.device import Device
from gradtool.exec.watch import _has_nan, _range

ABSENT = Device("cuda:0", object())  # its library has no function that takes an array of the host


@pytest.mark.parametrize("dtype", [np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_what_a_device_leaves_on_the_host_is_looked_at_there(dtype):
    good, bad = np.array([-1, 2], dtype), np.array([1, np.nan], dtype)

    assert not _has_nan(ABSENT, good)
    assert _has_nan(ABSENT, bad)
    assert _range(ABSENT, good) == "from -1 to 2"
    assert _range(ABSENT, bad) == "with a NaN"


def test_numbers_of_a_device_that_its_library_lacks_are_copied_to_the_host():
    class Bits:
        """Eight bits each, in a library that only moves them."""

        dtype, size = np.dtype(ml_dtypes.float8_e5m2), 2

        def view(self, dtype):
            return np.array([1, np.nan], self.dtype).view(dtype)

    class Library:
        asnumpy = staticmethod(np.array)

    assert _has_nan(Device("cuda:0", Library()), Bits())
    assert _range(Device("cuda:0", Library()), Bits()) == "with a NaN"

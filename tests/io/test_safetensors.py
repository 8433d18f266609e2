"""Safetensors files: what is written is read again, and what is damaged is refused."""

from __future__ import annotations

import json
import os
import struct

import ml_dtypes
import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gradtool.errors import UsageError
from gradtool.io import safetensors

TYPES = [
    *map(np.dtype, ("?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8")),
    *map(np.dtype, (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)),
]  # fmt: skip


@st.composite
def arrays(draw):
    """An array of any type and of any shape, a view with strides among them."""
    dtype = draw(st.sampled_from(TYPES))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    count = int(np.prod(shape))
    data = np.frombuffer(bytes(range(256)) * (1 + count), np.uint8)[: count * dtype.itemsize]
    made = (data & 1).view(dtype) if dtype.kind == "b" else data.copy().view(dtype)
    made = made.reshape(shape)
    return made.T if draw(st.booleans()) else made


@settings(max_examples=trials(80), derandomize=True, database=None, deadline=None)
@given(st.dictionaries(st.text(max_size=8).filter(lambda n: n != "__metadata__"), arrays(),
                       max_size=5),
       st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2))  # fmt: skip
def test_what_is_written_is_read_again(tmp_path_factory, given, metadata):
    path = tmp_path_factory.mktemp("files") / "a.safetensors"

    size = safetensors.save(path, given, metadata)
    found = safetensors.load(path)

    assert (path.stat().st_size, found.metadata) == (size, metadata)
    assert found.arrays.keys() == given.keys()
    for name, array in given.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()


def test_the_same_arrays_in_another_order_are_the_same_bytes(tmp_path):
    one = {
        "b": np.arange(3, dtype=np.float32),
        "a": np.int64(4).reshape(()),
        "c": np.zeros(0, "f2"),
    }
    safetensors.save(tmp_path / "a", one)
    safetensors.save(tmp_path / "b", dict(reversed(one.items())))

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_every_tensor_is_aligned(tmp_path):
    made = {"z": np.zeros(3, np.int8), "y": np.zeros(5, np.float64), "x": np.zeros(3, np.float16)}
    safetensors.save(tmp_path / "a", made)

    assert all(a.flags.aligned for a in safetensors.load(tmp_path / "a").arrays.values())


@pytest.mark.extra
def test_the_format_s_own_reader_takes_it(tmp_path):
    theirs = pytest.importorskip("safetensors.numpy")
    made = {"a/b": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(7, np.int64)}
    safetensors.save(tmp_path / "a", made)

    found = theirs.load_file(tmp_path / "a")

    assert found.keys() == made.keys()
    assert all((found[name] == made[name]).all() for name in made)


def test_a_type_that_the_format_has_not_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has no type int4, which 'w' is of"):
        safetensors.save(tmp_path / "a", {"w": np.zeros(2, ml_dtypes.int4)})


def _file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _entry(**change):
    return {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | change}


DAMAGED = {
    "it is too short": b"1234",
    "its header does not end in it": struct.pack("<Q", 99) + b"{}",
    "its header is no JSON object": _file([]),
    "Expecting": _file(b"{no"),
    "its __metadata__ are no texts": _file({"__metadata__": {"a": 1}}),
    "'a' is not described": _file({"a": 3}),
    "'a' is of the unknown type 'F4'": _file(_entry(dtype="F4"), bytes(4)),
    "'a' has no shape": _file(_entry(shape=[-1]), bytes(4)),
    "'a' does not lie in it": _file(_entry(data_offsets=[0, 8]), bytes(4)),
    r"'a' has 4 bytes, which is not float32\[2\]": _file(_entry(shape=[2]), bytes(4)),
    "its tensors are not all of its bytes": _file(_entry(), bytes(5)),
    "its tensors overlap, or leave gaps": _file(
        {**_entry(), "b": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}}, bytes(6)
    ),
}


@pytest.mark.parametrize("why", DAMAGED)
def test_a_damaged_file_is_refused_with_what_is_wrong(why, tmp_path):
    (tmp_path / "a").write_bytes(DAMAGED[why])

    with pytest.raises(UsageError, match=f"a: is no safetensors file: .*{why}"):
        safetensors.load(tmp_path / "a")


@pytest.mark.parametrize("cut", range(0, 90, 7))
def test_a_file_cut_anywhere_is_refused(cut, tmp_path):
    safetensors.save(tmp_path / "a", {"w": np.arange(6, dtype=np.float32)})
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "b").write_bytes(data[: min(cut, len(data) - 1)])

    with pytest.raises(UsageError, match="is no safetensors file"):
        safetensors.load(tmp_path / "b")


@pytest.mark.parametrize("size", [0, 40, -1])
def test_a_file_that_shrinks_before_it_is_read_is_one_line(size, tmp_path):
    """Who reads a mapping behind the end of its file is killed."""
    path, made = tmp_path / "a", np.arange(1 << 16, dtype=np.float32)
    safetensors.save(path, {"w": made})
    found = safetensors.load(path).arrays
    assert (found["w"] == made).all()
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)

    with pytest.raises(UsageError, match="a: has shrunk while it was read: to "):
        found["w"]


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(UsageError, match="gone: cannot be read: No such file"):
        safetensors.load(tmp_path / "gone")

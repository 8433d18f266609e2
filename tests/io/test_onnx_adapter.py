"""`.onnx_adapter` files: what stock onnxruntime reads is what was written."""

from __future__ import annotations

import io

import ml_dtypes
import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gradtool.errors import UsageError
from gradtool.io import onnx_adapter

ort = pytest.importorskip("onnxruntime")
TYPES = ("f2", "f4", "f8")  # those of adapters


@settings(max_examples=trials(60), derandomize=True, database=None, deadline=None)
@given(st.data())
def test_onnxruntime_reads_what_is_written(tmp_path_factory, data):
    names = data.draw(st.lists(st.text(min_size=1, max_size=9), max_size=5, unique=True))
    arrays = {}
    for name in names:
        shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
        dtype = np.dtype(data.draw(st.sampled_from(TYPES)))
        arrays[name] = data.draw(hnp.arrays(dtype, shape))
    path = tmp_path_factory.mktemp("files") / "a.onnx_adapter"
    writer = onnx_adapter.writer(arrays)
    with path.open("wb") as file:
        writer.write(file)

    assert path.stat().st_size == writer.size
    found = ort.AdapterFormat.read_adapter(str(path))
    assert found.get_format_version() == 1
    parameters = found.get_parameters()
    assert parameters.keys() == arrays.keys()
    for name, array in arrays.items():
        theirs = parameters[name].numpy()
        assert (theirs.dtype, theirs.shape) == (array.dtype, array.shape)
        assert theirs.tobytes() == array.tobytes()


def test_narrow_floats_have_their_own_type(tmp_path):
    path = tmp_path / "a.onnx_adapter"
    with path.open("wb") as file:
        onnx_adapter.writer({"w": np.ones((2, 2), ml_dtypes.bfloat16)}).write(file)

    found = ort.AdapterFormat.read_adapter(str(path)).get_parameters()["w"]
    assert found.data_type() == "tensor(bfloat16)"


def test_the_order_of_tensors_is_that_of_their_names():
    arrays = {name: np.full(2, ord(name), np.float32) for name in "cab"}
    one, other = io.BytesIO(), io.BytesIO()
    onnx_adapter.writer(arrays).write(one)
    onnx_adapter.writer(dict(sorted(arrays.items()))).write(other)

    assert one.getvalue() == other.getvalue()


def test_too_much_for_the_format_is_refused(monkeypatch):
    monkeypatch.setattr(onnx_adapter, "_LARGEST", 200)
    with pytest.raises(UsageError, match=r"adapters of .* bytes are too large"):
        onnx_adapter.writer({"w": np.zeros(64, np.float32)})

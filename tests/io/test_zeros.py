"""Zeros take no memory while they are held, and one place in a data file whatever their number."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from data_files import data_of

from gradtool import io
from gradtool.io.zeros import Zeros

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
g (float[1024, 2] x, float[1024, 2] w, float[1024, 2] a, float[1024, 2] b, float[1] c) => (y) {
    s = Add (x, w) t = Add (s, a) u = Add (t, b) y = Add (u, c)
}"""
SIZES = {"a": (1024, 2), "b": (1024, 2), "c": (1,)}


@pytest.fixture
def path(tmp_path):
    """A model whose weight w lies in a file beside it."""
    np.arange(2048, dtype=np.float32).tofile(tmp_path / "w.bin")
    model = onnx.parser.parse_model(MODEL)
    del model.graph.input[1:]
    tensor = model.graph.initializer.add(name="w", dims=[1024, 2], data_type=1)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    for name, sizes in SIZES.items():
        made = onnx.numpy_helper.from_array(np.ones(sizes, np.float32), name)
        model.graph.initializer.append(made)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "m.onnx"


def with_zeros(path) -> ir.Model:
    model = io.load(path)
    for name, sizes in SIZES.items():
        model.graph.initializers[name].const_value = Zeros(ir.DataType.FLOAT, sizes, name)
    return model


@pytest.mark.parametrize("dtype", [ir.DataType.DOUBLE, ir.DataType.BFLOAT16, ir.DataType.INT64])
def test_zeros_are_what_they_say(dtype):
    found = Zeros(dtype, (2, 3), "z")

    assert (found.name, found.shape, found.dtype, found.nbytes) == (
        "z", [2, 3], dtype, 6 * dtype.bitwidth // 8,
    )  # fmt: skip
    assert found.numpy().dtype == dtype.numpy()
    assert found.tobytes() == bytes(found.nbytes)
    assert not found.numpy().astype(np.float64).any()


def test_large_zeros_take_no_memory():
    tracemalloc.start()
    shape = Zeros(ir.DataType.FLOAT, (1 << 20, 1 << 20)).numpy().shape
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert shape == (1 << 20, 1 << 20)
    assert most < 100_000


def test_beside_weights_in_a_file_they_share_one_place(path):
    target = path.with_name("step.onnx")
    io.save(with_zeros(path), target)
    written = onnx.load(target, load_external_data=False)
    places = {t.name: {e.key: e.value for e in t.external_data} for t in written.graph.initializer}
    again = io.load(target)

    assert places["a"] == places["b"] == {
        "location": data_of(target).name, "offset": "0", "length": "8192",
    }  # fmt: skip
    assert places["w"]["location"] == "w.bin"
    assert places["c"] == {}
    assert data_of(target).stat().st_size == 8192
    for name in SIZES:
        assert not io.array(again.graph.initializers[name].const_value).any()


def test_they_can_be_written_where_the_weights_of_the_model_lie(path):
    """The data file of the target is that of the weights: these are written anew beside them."""
    first = path.with_name("first.onnx")
    io.save(with_zeros(path), first, external_data="always")
    model = io.load(first)
    for name in "ab":
        model.graph.initializers[name].const_value = Zeros(ir.DataType.FLOAT, SIZES[name], name)
    io.save(model, first, force=True)
    again = io.load(first)

    np.testing.assert_array_equal(
        io.array(again.graph.initializers["w"].const_value).ravel(), np.arange(2048)
    )
    assert not io.array(again.graph.initializers["a"].const_value).any()


def test_a_model_without_a_data_file_holds_them(path):
    model = with_zeros(path)
    io.save(model, path.with_name("whole.onnx"), external_data="never")
    written = onnx.load(path.with_name("whole.onnx"))

    assert {t.name: len(t.raw_data) for t in written.graph.initializer} == {
        "w": 8192, "a": 8192, "b": 8192, "c": 4,
    }  # fmt: skip


def test_weights_that_are_absent_need_no_data_for_their_state(path):
    path.with_name("w.bin").unlink()
    target = path.with_name("step.onnx")
    io.save(with_zeros(path), target)

    assert io.load(target).graph.initializers["w"].const_value.absent
    assert data_of(target).stat().st_size == 8192

import io as streams
import os
import resource
import types

import numpy as np
import onnx_ir as ir
import pytest

from gradtool import io
from gradtool.errors import MissingData, ModelError
from gradtool.io import read
from gradtool.io.file_tensors import FileTensor


@pytest.fixture
def few_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (80, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def data(path, count):
    values = np.arange(count, dtype=np.float32)
    path.write_bytes(values.tobytes())
    return values


def tensor(model, name):
    return model.graph.initializers[name].const_value


@pytest.mark.parametrize(("small", "reads"), [(0, 2), (1 << 16, 1)])
def test_a_large_value_is_read_again_once_nobody_holds_it(
    small, reads, write, external, tmp_path, monkeypatch
):
    read, counted = FileTensor.read, []
    monkeypatch.setattr("gradtool.io.file_tensors.SMALL", small)
    monkeypatch.setattr(FileTensor, "read", lambda self: counted.append(0) or read(self))
    values = data(tmp_path / "w.bin", 6)
    last = tensor(io.load(write(external([2], [2], [2]))), "w2")
    held = io.array(last)

    np.testing.assert_array_equal(held, values[4:])
    assert not held.flags.writeable
    assert io.array(last) is held
    del held
    np.testing.assert_array_equal(io.array(last), values[4:])
    assert len(counted) == reads


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "sub/../../secret.bin",
        "sub/..",
        "..",
        ".",
        "",
        "/etc/hostname",
        "a//b",
        "..\\secret.bin",
        "C:/secret.bin",
        "file:///etc/hostname",
        "a\0b",
    ],
)
def test_a_location_outside_the_folder_is_refused(write, external, tmp_path, location):
    data(tmp_path.parent / "secret.bin", 2)
    with pytest.raises(ModelError, match="is not a plain path inside the model's folder"):
        io.load(write(external([2], location=location)))


def test_a_link_that_leaves_the_folder_is_refused(write, external, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside.bin"
    data(outside, 2)
    (tmp_path / "w.bin").symlink_to(outside)
    with pytest.raises(ModelError, match="leads out of the model's folder"):
        io.load(write(external([2])))


def test_a_model_in_a_hub_cache_is_found_through_its_links(write, external, tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    values = data(blobs / "2222", 2)
    write(external([2])).rename(blobs / "1111")
    (snapshot / "model.onnx").symlink_to("../../blobs/1111")
    (snapshot / "w.bin").symlink_to("../../blobs/2222")
    model = io.load(snapshot / "model.onnx")

    np.testing.assert_array_equal(io.array(tensor(model, "w0")), values)


def test_a_folder_in_the_place_of_data_is_refused(write, external, tmp_path):
    (tmp_path / "w.bin").mkdir()
    with pytest.raises(ModelError, match="is not a regular file"):
        io.load(write(external([2])))


def test_absent_data_is_tolerated_until_it_is_needed(write, external):
    model = io.load(write(external([2])))

    assert str(model.graph.outputs[0].shape) == "[2]"
    with pytest.raises(MissingData, match=r"'w0': its data file 'w\.bin' is not in the model's"):
        io.array(tensor(model, "w0"))


def test_a_pointer_to_large_file_storage_is_absent_data(write, external, tmp_path):
    (tmp_path / "w.bin").write_text("version https://git-lfs.github.com/spec/v1\nsize 8\n")
    model = io.load(write(external([2])))

    with pytest.raises(MissingData, match="or a Git LFS pointer; put it there and load"):
        io.array(tensor(model, "w0"))


def test_standard_input_has_no_folder_to_look_in(external, tmp_path, monkeypatch):
    data(tmp_path / "w.bin", 2)
    monkeypatch.chdir(tmp_path)
    stream = streams.BytesIO(external([2]).SerializeToString())
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=stream))
    model = io.load("-")

    with pytest.raises(MissingData):
        io.array(tensor(model, "w0"))


def test_data_that_changed_since_loading_is_not_read(write, external, tmp_path):
    data(tmp_path / "w.bin", 2)
    model = io.load(write(external([2])))
    data(tmp_path / "w.bin", 3)
    with pytest.raises(MissingData, match="changed since the model was loaded"):
        io.array(tensor(model, "w0"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 4}, "has 4 bytes, its shape and type need 8"),
        ({"offset": 4}, "has 8 bytes, 12 are needed"),
        ({"offset": 2**63 - 1}, "ends past 2.63 bytes"),
        ({"offset": 2**63}, "is not a number of bytes"),
        ({"offset": -1}, "is not a number of bytes"),
        ({"offset": "abc"}, "is not a number of bytes"),
    ],
)
def test_an_offset_or_length_that_cannot_be_is_refused(write, external, tmp_path, options, message):
    data(tmp_path / "w.bin", 2)
    with pytest.raises(ModelError, match=message):
        io.load(write(external([2], **options)))


def test_an_unknown_key_is_refused(write, external):
    model = external([2])
    model.graph.initializer[0].external_data.add(key="__class__", value="x")
    with pytest.raises(ModelError, match="'__class__' is unknown or given twice"):
        io.load(write(model))


def test_data_both_inside_and_outside_is_refused(write, external):
    model = external([2])
    model.graph.initializer[0].raw_data = bytes(8)
    with pytest.raises(ModelError, match="both raw data and external data"):
        io.load(write(model))


@pytest.mark.usefixtures("few_descriptors")
def test_many_tensors_need_one_descriptor(write, external, tmp_path):
    data(tmp_path / "w.bin", 1100 * 2)
    model = io.load(write(external(*[[2]] * 1100)))
    total = sum(float(io.array(v.const_value).sum()) for v in model.graph.initializers.values())

    assert total == sum(range(2200))


@pytest.mark.usefixtures("few_descriptors")
def test_many_files_do_not_use_up_the_descriptors(write, external, tmp_path):
    model = external(*[[2]] * 200)
    for number, proto in enumerate(model.graph.initializer):
        proto.external_data[0].value = f"w{number}.bin"
        proto.external_data[1].value = "0"
        data(tmp_path / f"w{number}.bin", 2)
    loaded = io.load(write(model))

    assert all(
        io.array(value.const_value)[1] == 1.0 for value in loaded.graph.initializers.values()
    )


def test_a_bare_file_name_is_resolved_against_the_working_folder(
    write, external, tmp_path, monkeypatch
):
    values = data(tmp_path / "w.bin", 2)
    write(external([2]))
    monkeypatch.chdir(tmp_path)
    model = io.load("model.onnx")
    os.chdir("/")

    np.testing.assert_array_equal(io.array(tensor(model, "w0")), values)


LOOKS = {
    "all of it": lambda tensor: tensor.read(),
    "its beginning": lambda tensor: tensor.flat(0, 3),
    "a part": lambda tensor: tensor.flat(500, 600),
    "a copy": lambda tensor: tensor.tobytes(),
    "a small one": lambda tensor: tensor.numpy(),
}


@pytest.mark.parametrize("how", LOOKS)
@pytest.mark.parametrize("size", [0, 4, 4000])
def test_a_file_that_shrinks_is_one_line(how, size, write, external, tmp_path):
    """Who reads a mapping behind the end of its file is killed."""
    data(tmp_path / "w.bin", 1024)
    held = tensor(io.load(write(external([1024]))), "w0")
    expected = held.read().tobytes()
    os.truncate(tmp_path / "w.bin", size)

    assert len(expected) == 4096
    with pytest.raises(MissingData, match=r"w\.bin: changed since the model was loaded"):
        LOOKS[how](held)


TAKEN = {
    "loaded": lambda model, _: io.load(read.Held(model)),
    "saved": lambda model, path: io.save(model, path, external_data="always"),
    "saved in one file": lambda model, path: io.save(model, path, external_data="never"),
}


@pytest.mark.parametrize("how", TAKEN)
def test_data_of_a_program_s_model_is_read_and_not_mapped(how, write, external, tmp_path):
    data(tmp_path / "w.bin", 1 << 16)
    model = ir.load(write(external([1 << 16])))
    (tmp_path / "away").mkdir()
    TAKEN[how](model, tmp_path / "away" / "whole.onnx")
    os.truncate(tmp_path / "w.bin", 4096)

    with pytest.raises(MissingData, match=r"w\.bin: has shrunk while it was read: to 4096 bytes"):
        TAKEN[how](model, tmp_path / "away" / "cut.onnx")
    assert not (tmp_path / "away" / "cut.onnx").exists()


@pytest.mark.parametrize("how", TAKEN)
def test_data_of_a_program_s_model_lies_in_its_folder(how, write, external, tmp_path):
    data(tmp_path / "secret.bin", 2)
    (tmp_path / "model").mkdir()
    model = ir.load(write(external([2], location="../secret.bin"), "model/model.onnx"))

    with pytest.raises(ModelError, match="leads out of the model's folder"):
        TAKEN[how](model, tmp_path / "out.onnx")

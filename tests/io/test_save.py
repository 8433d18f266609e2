import hashlib
import io as streams
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import onnx
import pytest
from data_files import data_of

from gradtool import io
from gradtool.errors import UsageError

RELU = "g (float[batch, 4] x) => (float[batch, 4] y) { y = Relu (x) }"


@pytest.fixture
def model(write):
    return io.load(write(RELU))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_saved_model_is_loaded_again(model, tmp_path):
    path, size = io.save(model, tmp_path / "out.onnx")

    assert path == tmp_path / "out.onnx"
    assert size == path.stat().st_size
    assert [node.op_type for node in io.load(path).graph] == ["Relu"]
    onnx.checker.check_model(onnx.load(path), full_check=True)


def test_no_notes_of_shape_inference_are_written(write, tmp_path):
    model = io.load(write("g (float[n, 4] x) => (y) { s = Shape (x) y = Expand (x, s) }"))
    io.save(model, tmp_path / "out.onnx")

    assert b"onnx_shape_inference" not in (tmp_path / "out.onnx").read_bytes()


def test_open_sizes_have_names_at_the_ends_of_a_model_only(write, tmp_path):
    model = io.load(
        write("g (float[n, 4] x, float[m, 4] z) => (y) { s = Add (x, z) t = Abs (s) y = Relu (t) }")
    )
    io.save(model, tmp_path / "out.onnx")

    graph = onnx.load(tmp_path / "out.onnx").graph
    dims = {v.name: v.type.tensor_type.shape.dim for v in (*graph.input, *graph.value_info)}
    said = {
        name: [d.dim_param or d.dim_value or None for d in sizes] for name, sizes in dims.items()
    }
    assert said == {"x": ["n", 4], "z": ["m", 4], "s": [None, 4], "t": [None, 4]}


def test_the_text_form_is_written_by_its_suffix(model, tmp_path):
    io.save(model, tmp_path / "out.onnxtxt")

    assert "y = Relu (x)" in (tmp_path / "out.onnxtxt").read_text()
    assert [node.op_type for node in io.load(tmp_path / "out.onnxtxt").graph] == ["Relu"]


def test_an_existing_output_needs_force(model, tmp_path):
    (tmp_path / "out.onnx").write_text("precious")
    with pytest.raises(UsageError, match="exists; pass --force to overwrite"):
        io.save(model, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_text() == "precious"

    io.save(model, tmp_path / "out.onnx", force=True)
    assert io.load(tmp_path / "out.onnx")


def test_a_folder_is_no_output(model, tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        io.save(model, tmp_path, force=True)


def test_a_missing_folder_is_named(model, tmp_path):
    with pytest.raises(UsageError, match="there is no folder"):
        io.save(model, tmp_path / "none" / "out.onnx")


def test_a_file_in_the_place_of_a_folder_is_named(model, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="there is no folder"):
        io.save(model, tmp_path / "file" / "out.onnx")


def test_a_read_only_folder_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match="its folder is read-only"):
        io.save(model, tmp_path / "out.onnx")


def test_a_device_is_no_output(model):
    with pytest.raises(UsageError, match="is not a regular file"):
        io.save(model, "/dev/null", force=True)


def test_a_link_is_followed_and_stays_a_link(model, tmp_path):
    (tmp_path / "real.onnx").touch()
    (tmp_path / "link.onnx").symlink_to("real.onnx")
    io.save(model, tmp_path / "link.onnx", force=True)

    assert (tmp_path / "link.onnx").is_symlink()
    assert (tmp_path / "real.onnx").stat().st_size > 0


@pytest.fixture
def heavy(write, weighted):
    return io.load(write(weighted(1000)))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(heavy, tmp_path, monkeypatch, error, step):
    (tmp_path / "out.onnx").write_text("precious")
    (tmp_path / "out.onnx.data").write_text("weights")
    before = names(tmp_path)
    calls = []

    def fail(real):
        def call(*args):
            calls.append(args)
            if len(calls) == 2:
                raise error
            return real(*args)

        return call

    owner = os if step == "fsync" else Path
    monkeypatch.setattr(owner, step, fail(getattr(owner, step)))
    with pytest.raises((UsageError, KeyboardInterrupt)):
        io.save(heavy, tmp_path / "out.onnx", force=True, external_data="always")
    monkeypatch.undo()

    assert names(tmp_path) == before
    assert (tmp_path / "out.onnx").read_text() == "precious"
    assert (tmp_path / "out.onnx.data").read_text() == "weights"


def test_the_system_s_reason_is_told(model, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"out\.onnx: cannot be written: No space left"):
        io.save(model, tmp_path / "out.onnx")
    assert names(tmp_path) == ["model.onnx"]


def test_the_permissions_of_an_overwritten_file_are_kept(model, tmp_path):
    out = tmp_path / "out.onnx"
    out.touch(mode=0o640)
    io.save(model, out, force=True)

    assert out.stat().st_mode & 0o777 == 0o640


@pytest.mark.exhaustive
def test_the_same_model_gives_the_same_bytes_whatever_the_hash_seed(write, tmp_path):
    path = write(
        "g (float[n, 4] x) => (float[n, 4] y) "
        "{ a = Relu (x) b = Exp (a) c = Add (a, b) y = Neg (c) }"
    )
    script = (
        "import sys; from gradtool import io; model = io.load(sys.argv[1]);"
        "model.metadata_props.update({k: k for k in sorted({'gradtool.a', 'gradtool.b'})});"
        "io.save(model, sys.argv[2])"
    )
    digests = set()
    for seed in ("1", "2"):
        out = tmp_path / f"{seed}.onnx"
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", script, path, out], check=True, env=environment)
        digests.add(hashlib.sha256(out.read_bytes()).hexdigest())

    assert len(digests) == 1


def test_saving_leaves_the_model_as_it_was(write, weighted, tmp_path):
    model = io.load(write(weighted(1000)))
    tensor = model.graph.initializers["w"].const_value
    io.save(model, tmp_path / "out.onnx", external_data="always")

    assert model.graph.initializers["w"].const_value is tensor


def test_always_writes_the_weights_beside_the_model(write, weighted, tmp_path):
    model = io.load(write(weighted(1000)))
    path, size = io.save(model, tmp_path / "out.onnx", external_data="always")

    data = data_of(path)
    assert size == path.stat().st_size + data.stat().st_size == path.stat().st_size + 4000
    np.testing.assert_array_equal(
        io.array(io.load(path).graph.initializers["w"].const_value),
        np.arange(1000, dtype=np.float32),
    )
    onnx.checker.check_model(str(path))


def test_data_has_a_name_of_its_content(write, weighted, tmp_path):
    first, second = (io.load(write(weighted(n), f"{n}.onnx")) for n in (1000, 1001))
    found = []
    for model in (first, second, first):
        io.save(model, tmp_path / "out.onnx", external_data="always", force=True)
        found.append(data_of(tmp_path / "out.onnx").name)

    assert all(re.fullmatch(r"out\.onnx\.[0-9a-f]{16}\.data", name) for name in found)
    assert found[0] == found[2] != found[1]
    assert names(tmp_path) == ["1000.onnx", "1001.onnx", "out.onnx", found[0]]


def test_data_that_another_model_refers_to_stays(write, weighted, tmp_path):
    first, second = (io.load(write(weighted(n), f"{n}.onnx")) for n in (1000, 1001))
    io.save(first, tmp_path / "out.onnx", external_data="always")
    kept = data_of(tmp_path / "out.onnx")
    (tmp_path / "other.onnx").write_bytes((tmp_path / "out.onnx").read_bytes())
    io.save(second, tmp_path / "out.onnx", external_data="always", force=True)

    assert kept.exists()
    assert io.array(io.load(tmp_path / "other.onnx").graph.initializers["w"].const_value)[-1] == 999


@pytest.mark.parametrize("referring", ["out.onnx", "other.onnx"])
def test_data_of_a_plain_name_goes_with_its_model_alone(
    write, external, weighted, tmp_path, referring
):
    (tmp_path / "out.onnx.data").write_bytes(bytes(8000))
    write(external([2000], location="out.onnx.data"), referring)
    model = io.load(write(weighted(1000)))
    io.save(model, tmp_path / "out.onnx", external_data="always", force=True)

    assert (tmp_path / "out.onnx.data").exists() == (referring == "other.onnx")


def test_data_in_the_same_folder_is_referred_to(write, external, tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(8000))
    model = io.load(write(external([2000])))
    io.save(model, tmp_path / "out.onnx")

    assert names(tmp_path) == ["model.onnx", "out.onnx", "w.bin"]
    assert io.load(tmp_path / "out.onnx").graph.initializers["w0"].const_value.location == "w.bin"


def test_data_is_copied_into_another_folder(write, external, tmp_path):
    (tmp_path / "w.bin").write_bytes(np.arange(2000, dtype=np.float32).tobytes())
    model = io.load(write(external([2000])))
    (tmp_path / "other").mkdir()
    io.save(model, tmp_path / "other" / "out.onnx")
    again = io.load(tmp_path / "other" / "out.onnx")

    assert names(tmp_path / "other") == ["out.onnx", data_of(tmp_path / "other" / "out.onnx").name]
    assert io.array(again.graph.initializers["w0"].const_value)[-1] == 1999.0


def test_never_takes_external_data_into_the_model(write, external, tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(8000))
    model = io.load(write(external([2000])))
    _, size = io.save(model, tmp_path / "out.onnx", external_data="never")
    (tmp_path / "w.bin").unlink()

    assert size > 8000
    assert not io.array(io.load(tmp_path / "out.onnx").graph.initializers["w0"].const_value).any()


def test_absent_data_keeps_its_reference(write, external, tmp_path):
    model = io.load(write(external([2000], [3])))
    (tmp_path / "other").mkdir()
    io.save(model, tmp_path / "other" / "out.onnx", external_data="always")
    kept = io.load(tmp_path / "other" / "out.onnx").graph.initializers["w1"].const_value

    assert (kept.location, kept.offset, kept.length) == ("w.bin", 8000, 12)
    assert names(tmp_path / "other") == ["out.onnx"]


def test_a_model_may_be_written_over_itself_and_its_data(write, external, tmp_path):
    values = np.arange(2000, dtype=np.float32)
    (tmp_path / "model.onnx.data").write_bytes(values.tobytes())
    path = write(external([2000], location="model.onnx.data"))
    model = io.load(path)
    model.graph.initializers["w0"].const_value.numpy()
    io.save(model, path, force=True, external_data="always")
    io.save(io.load(path), path, force=True)

    np.testing.assert_array_equal(
        io.array(io.load(path).graph.initializers["w0"].const_value), values
    )


def test_a_model_too_large_for_one_file_says_what_to_do(write, weighted, tmp_path, monkeypatch):
    monkeypatch.setattr("gradtool.io.layout.LARGEST_INLINE", 100)
    model = io.load(write(weighted(1000)))
    with pytest.raises(UsageError, match="write them beside it with --external-data auto"):
        io.save(model, tmp_path / "out.onnx", external_data="never")
    io.save(model, tmp_path / "out.onnx")

    assert data_of(tmp_path / "out.onnx").stat().st_size == 4000


def redirect(monkeypatch, file, *, terminal=False):
    monkeypatch.setattr("sys.stdout", types.SimpleNamespace(buffer=file, isatty=lambda: terminal))


def test_a_minus_writes_to_standard_output(model, monkeypatch):
    file = streams.BytesIO()
    redirect(monkeypatch, file)
    path, size = io.save(model, "-")

    assert str(path) == "-"
    assert size == len(file.getvalue())
    assert onnx.load_from_string(file.getvalue()).graph.node[0].op_type == "Relu"


def test_a_terminal_is_no_output(model, monkeypatch):
    redirect(monkeypatch, streams.BytesIO(), terminal=True)
    with pytest.raises(UsageError, match="is a terminal"):
        io.save(model, "-")


def test_nothing_can_lie_beside_standard_output(model):
    with pytest.raises(UsageError, match="needs a file to write beside"):
        io.save(model, "-", external_data="always")

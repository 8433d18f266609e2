"""`.npy` and `.npz` files: what numpy writes is read, and what lies is one line before that."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gradtool.errors import UsageError
from gradtool.io import npy
from gradtool.io.stored import GAP

DTYPES = ("?", "i1", "<u2", ">i4", "<i8", "<u8", "<f2", ">f4", "<f8", "<c8", "S3", "<U2", ">U2")


def arrays():
    shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
    return st.builds(
        lambda dtype, shape, turned: np.asarray(
            np.arange(int(np.prod(shape))).reshape(shape) % 2, order="F" if turned else "C"
        ).astype(dtype, order="K"),
        st.sampled_from(DTYPES), shapes, st.booleans(),
    )  # fmt: skip


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(st.dictionaries(st.sampled_from("ab/é"), arrays(), max_size=3), st.booleans())
def test_what_numpy_writes_is_read(tmp_path_factory, made, compressed):
    path = tmp_path_factory.mktemp("files") / "a.npz"
    (np.savez_compressed if compressed else np.savez)(path, **made)

    found = npy.read(path)

    assert found.keys() == made.keys()
    for name, array in made.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


@settings(max_examples=80, derandomize=True, database=None, deadline=None)
@given(arrays().filter(lambda array: array.ndim), st.data())
def test_what_stays_in_its_file_is_taken_as_numpy_takes(tmp_path_factory, array, data):
    path = tmp_path_factory.mktemp("files") / "a.npy"
    np.save(path, array)
    axis = data.draw(st.integers(0, array.ndim - 1))
    most = array.shape[axis] - 1
    indices = data.draw(st.lists(st.integers(0, most), max_size=7)) if most >= 0 else []
    wanted = np.asarray(indices, np.int64)

    held = npy.stored(path)

    assert (held.dtype, held.shape, held.ndim) == (array.dtype, array.shape, array.ndim)
    assert np.asarray(held).tobytes() == array.tobytes()
    np.testing.assert_array_equal(held.take(wanted, axis), np.take(array, wanted, axis))


@pytest.mark.parametrize("width", [1, 7, GAP // 8, GAP])
@pytest.mark.parametrize("turned", [False, True])
def test_rows_far_from_each_other_are_read_apart(tmp_path, width, turned):
    array = np.arange(3000 * width, dtype="<f8").reshape(3000, width)
    np.save(tmp_path / "a.npy", np.asfortranarray(array) if turned else array)
    rows = np.array([2999, 0, 1, 1, 1500, 17, 2999])

    np.testing.assert_array_equal(npy.stored(tmp_path / "a.npy").take(rows), array[rows])


def test_an_index_that_an_axis_has_not_is_an_error(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    for wrong in ([3], [-1]):
        with pytest.raises(IndexError):
            npy.stored(tmp_path / "a.npy").take(np.array(wrong))


@pytest.mark.parametrize("size", [0, 50, 200, 8127])
def test_a_file_that_shrinks_while_it_is_read_is_one_line(tmp_path, size):
    """Who reads a mapping behind the end of its file is killed."""
    np.save(tmp_path / "a.npy", np.zeros(1000))
    held = npy.stored(tmp_path / "a.npy")
    os.truncate(tmp_path / "a.npy", size)

    for read in (lambda: np.asarray(held), lambda: held.take(np.array([999]))):
        with pytest.raises(UsageError, match="has shrunk while it was read"):
            read()


def header(text, version=1, length=None, magic=b"\x93NUMPY"):
    data = text if isinstance(text, bytes) else text.encode()
    form = "<H" if version == 1 else "<I"
    return magic + bytes([version, 0]) + struct.pack(form, length or len(data)) + data


def described(descr="'<f4'", shape="(2, 3)", order="False", data=bytes(24)):
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"
    return header(text) + data


def saved(array, **how):
    file = io.BytesIO()
    np.save(file, array, **how)
    return file.getvalue()


LIES = {
    "begins otherwise": b"\x93NUMPX" + described()[6:],
    "its version 9 is unknown": header("{}", 9),
    "its header does not end in it": header("(", 2, 1 << 31),
    "its header has 70000 bytes": header(" " * 70000, 2),
    "it has 24 bytes of an array": described(shape="(2, 4)"),
    "it has 20 bytes of an array": described(data=bytes(20)),
    "it has 24 bytes of an array float32[1099511627776, 3]": described(shape=f"({1 << 40}, 3)"),
    "describes no array     ": described(shape="(-2, 3)"),
    "no array has the shape": described(shape=f"({1 << 62}, 4, 3)"),
    "no array has the shape ": described(shape=f"({1 << 62}, 4, 0)", data=b""),
    "which no array has ": described(shape=f"({'9' * 5000},)"),
    "which no array has  ": described(shape="(6)"),
    "which no array has   ": described(shape=f"({'1,' * 33})", data=bytes(4)),
    "describes no array": described(order="0"),
    "describes no array ": described(shape="(exit(),)"),
    "describes no array  ": header("(" * 9000, 2) + bytes(24),
    "describes no array   ": header("{'descr': '<f4', 'shape': (6,), }") + bytes(24),
    "describes no array    ": described(order="False, 'more': True"),
    "says 'shape' twice": described(order="False, 'shape': (6,)"),
    "its type '<f9' is unknown": described("'<f9'"),
    "its type 'S0' is none": described("'S0'", data=b""),
    "its type 'T' is none": described("'T'"),
    "structures": described("[('a', '<f4')]"),
    "structures ": described("('<f4', (2,))"),
    "its type 'i4,f4' is none": described("'i4,f4'"),
    "no Unicode": described("'<U1'", data=b"\xff" * 24),
    "holds Python objects": saved(np.array([None, 1]), allow_pickle=True),
    "holds dates": saved(np.zeros(3, "M8[s]")),
    "holds differences of dates": saved(np.zeros(3, "m8[s]")),
}  # fmt: skip


@pytest.mark.parametrize("said", LIES)
@pytest.mark.parametrize("packed", ["npy", "stored", "deflated"])
def test_a_file_that_lies_is_one_line(tmp_path, said, packed):
    path = tmp_path / "a"
    if packed == "npy":
        path.write_bytes(LIES[said])
    else:
        way = zipfile.ZIP_STORED if packed == "stored" else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(path, "w", way) as archive:
            archive.writestr("x.npy", LIES[said])
    stays = packed == "npy" and said != "no Unicode"
    readers = [npy.read, npy.stored] if stays else [npy.read]
    for reader in readers:
        with pytest.raises(UsageError) as error:
            np.asarray(reader(path))
        told = str(error.value)
        assert "\n" not in told
        assert "pickle" not in told
        assert said.strip() in told or said == "begins otherwise"


def archive(path, members, way=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", way) as made:
        for name, data in members:
            made.writestr(name, data)
    return path


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("x.npy", "x.npy"), "two arrays 'x'"), (("../x.npy",), "is no array"),
        (("..\\x.npy",), "is no array"), (("a/../x.npy",), "is no array"), (("x.txt",), "no array"),
    ],
)  # fmt: skip
def test_members_that_numpy_does_not_write_are_refused(tmp_path, names, said):
    path = archive(tmp_path / "a.npz", [(name, saved(np.zeros(3))) for name in names])

    with pytest.raises(UsageError, match=said):
        npy.read(path)


def test_other_compressions_are_refused(tmp_path):
    path = archive(tmp_path / "a.npz", [("x.npy", saved(np.zeros(3)))], zipfile.ZIP_LZMA)

    with pytest.raises(UsageError, match="compressed in another way"):
        npy.read(path)


def test_more_than_there_is_room_for_is_refused_before_it_is_read(tmp_path):
    bomb = described(shape=f"({1 << 24},)", data=bytes(1 << 26))
    path = archive(tmp_path / "a.npz", [("x.npy", bomb), ("y.npy", bomb)])
    del bomb
    tracemalloc.start()
    with pytest.raises(UsageError, match="its arrays take 128 MiB of memory"):
        npy.read(path, 1 << 26)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert path.stat().st_size < 1 << 18
    assert most < 1 << 21


@pytest.mark.parametrize("kind", ["folder", "pipe", "absent"])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path, kind):
    path = tmp_path / "a.npz"
    if kind == "folder":
        path.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    for reader in (npy.read, npy.stored):
        with pytest.raises(UsageError, match="cannot be read"):
            reader(path)


@pytest.mark.parametrize("seed", range(3))
def test_damage_is_one_line_or_none(tmp_path, seed):
    """Bytes changed and cut anywhere: the arrays are as they were, or the file is refused."""
    rng = np.random.default_rng(seed)
    path = tmp_path / "a.npz"
    whole = {"x": np.arange(24.0).reshape(4, 6), "labels": np.arange(4)}
    (np.savez if seed else np.savez_compressed)(path, **whole)
    good = path.read_bytes()
    refused = 0
    for _ in range(150):
        bad = bytearray(good)
        if rng.random() < 0.3:
            bad = bad[: rng.integers(len(bad))]
        else:
            bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
        path.write_bytes(bad)
        found = {}
        with suppress(UsageError):
            found = npy.read(path)
        refused += not found
        for name in found.keys() & whole.keys():
            assert found[name].tobytes() == whole[name].tobytes()

    assert refused > 50

"""Arrow streams, folders that `datasets` saved, and texts in Parquet: the same steps as arrays."""

import json

import numpy as np
import pytest
from trainings import examples, load

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.training.columns import Categories, Unread
from gradtool.training.tables import columns

pytestmark = pytest.mark.extra
pa = pytest.importorskip("pyarrow")

GOOD = examples(20)
NAMES = ["blue", "green", "red"]


def losses(data, names=None, **options):
    with gt.Trainer(load(), batch=4, steps=6, lr=0.1, optimizer="sgd", **options) as trainer:
        return trainer.fit(data, names=names).losses


def table(start=0, end=20, *, texts=False):
    labels = GOOD["labels"][start:end]
    return pa.table({
        **{f"f{n}": GOOD["x"][start:end, n] for n in range(6)},
        "labels": [NAMES[label] for label in labels] if texts else labels,
    })  # fmt: skip


def write_stream(path, found):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, found.schema) as stream:
        stream.write_table(found, max_chunksize=3)
    return path


def saved(folder, found=None, **info):
    """A folder as `datasets.save_to_disk` makes it, of two shards."""
    folder.mkdir()
    names = [f"data-{n:05}-of-00002.arrow" for n in range(2)]
    for number, name in enumerate(names):
        write_stream(folder / name, table(8 * number, 8 + 12 * number))
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": name} for name in found or names]})
    )
    (folder / "dataset_info.json").write_text(json.dumps(info))
    return folder


@pytest.mark.parametrize("suffix", ["arrow", "arrows"])
def test_streams_are_the_arrays(tmp_path, suffix):
    path = write_stream(tmp_path / f"a.{suffix}", table())

    assert losses(path, {"x": "f*"}) == losses(GOOD)


def test_a_folder_that_was_saved_is_its_shards_and_has_its_classes(tmp_path):
    classes = {"features": {"labels": {"names": NAMES, "_type": "ClassLabel"}, "f0": {}}}
    path = saved(tmp_path / "set", **classes)

    assert losses(path, {"x": "f*"}) == losses(GOOD)
    with gt.Trainer(load(), steps=1) as trainer:
        trainer.fit(path, names={"x": "f*"}, run=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "classes.json").read_text()) == {"labels": NAMES}


@pytest.mark.parametrize("dictionary", [False, True])
def test_texts_of_parquet_are_classes_where_they_are_asked_for(tmp_path, dictionary):
    from pyarrow import parquet

    found = table(texts=True)
    if dictionary:
        found = found.set_column(6, "labels", found["labels"].dictionary_encode())
    path = tmp_path / "a.parquet"
    parquet.write_table(found, path, row_group_size=6)

    assert losses(path, {"x": "f*"}, categories=["labels"]) == losses(GOOD)
    unread = columns(path)["labels"]
    assert isinstance(unread, Unread)
    assert "--categories labels takes texts as classes" in unread.why


def broken(tmp_path, how):
    folder = saved(tmp_path / "set", ["../a.arrow"] if how == "above" else None)
    if how == "splits":
        (folder / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    elif how == "gone":
        (folder / "data-00001-of-00002.arrow").unlink()
    elif how == "no names":
        (folder / "state.json").write_text("[]")
    elif how == "no json":
        (folder / "state.json").write_text("{")
    elif how == "other columns":
        write_stream(folder / "data-00001-of-00002.arrow", pa.table({"a": [1]}))
    elif how == "cut":
        path = folder / "data-00001-of-00002.arrow"
        path.write_bytes(path.read_bytes()[:700])
    return folder


BROKEN = {
    "splits": "holds the sets train, test: name one, as ",
    "above": "state.json: names no files of this folder",
    "gone": "data-00001-of-00002.arrow: cannot be read",
    "no names": "state.json: names no files",
    "no json": "state.json: is no JSON",
    "other columns": "its files have different columns",
    "cut": "cannot be read as",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_folder_that_is_none_is_one_line(tmp_path, how):
    with pytest.raises(UsageError) as error:
        columns(broken(tmp_path, how), Categories())

    assert BROKEN[how] in str(error.value)
    assert "\n" not in str(error.value)


def test_a_null_among_texts_is_refused(tmp_path):
    path = write_stream(tmp_path / "a.arrows", pa.table({"t": ["a", None]}))
    with pytest.raises(UsageError, match="column 't' has 1 nulls"):
        columns(path, Categories(["t"]))
    assert np.array_equal(
        columns(write_stream(path, pa.table({"t": ["b", "a"]})), Categories(["t"]))["t"], [1, 0]
    )

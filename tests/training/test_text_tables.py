"""Tables in text: columns side by side, texts as classes, and a sentence for each mistake."""

import json

import numpy as np
import pytest
from data_sources import write_csv, write_jsonl
from trainings import examples, load

import gradtool as gt
from gradtool.errors import GradtoolError, UsageError
from gradtool.exec import available_memory
from gradtool.training.callbacks import Watcher
from gradtool.training.columns import Categories, Unread
from gradtool.training.text_tables import columns

GOOD = examples(20)
OPTIONS = {"batch": 4, "steps": 6, "lr": 0.1, "optimizer": "sgd"}
NAMES = {"x": "f*", "labels": "color"}


class Said(Watcher):
    def __init__(self):
        self.lines = []

    def said(self, line):
        self.lines.append(line)


def losses(data, names=None, watcher=None, evaluate=None, **options):
    with gt.Trainer(load(), **OPTIONS | options) as trainer:
        return trainer.fit(data, names=names, watcher=watcher, evaluate=evaluate).losses


def by_name(arrays):
    """Labels as sorted names number them."""
    return arrays | {"labels": np.array([2, 1, 0])[arrays["labels"]]}


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
@pytest.mark.parametrize("x", ["f*", "f0,f1,f2,f3,f4,f5", "f[0-4],f5", "*"])
def test_columns_side_by_side_are_the_arrays(tmp_path, suffix, separator, x):
    path = write_csv(tmp_path / f"a.{suffix}", GOOD, separator)
    names = {"x": x, "labels": "color"}

    assert losses(path, names, categories=["color"]) == losses(by_name(GOOD))


def test_objects_a_line_are_the_arrays(tmp_path):
    assert losses(write_jsonl(tmp_path / "a.jsonl", GOOD)) == losses(GOOD)


def test_classes_are_those_of_the_data_that_are_trained_on(tmp_path):
    few = {name: array[GOOD["labels"] != 2] for name, array in GOOD.items()}
    train, test = write_csv(tmp_path / "a.csv", GOOD), write_csv(tmp_path / "b.csv", few)
    with gt.Trainer(load(), **OPTIONS, categories=["color"]) as trainer:
        found = trainer.fit(train, evaluate=test, names=NAMES).evaluations
    with gt.Trainer(load(), **OPTIONS) as trainer:
        assert trainer.fit(by_name(GOOD), evaluate=by_name(few)).evaluations == found
    with pytest.raises(UsageError, match="has the class 'blue', which the data that are trained"):
        losses(test, NAMES, evaluate=train, categories=["color"])


def test_quoted_fields_and_types_are_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('\ufeffa,"b, c",d,e\n1,"x ""y"", z",true,1e3\n\n-2,"two\nlines",False, 2 \n')
    found = columns(path, Categories(["b*"]))

    assert {name: array.dtype.name for name, array in found.items()} == {
        "a": "int64", "b, c": "int64", "d": "bool", "e": "float64",
    }  # fmt: skip
    assert [array.tolist() for array in found.values()] == [
        [1, -2], [1, 0], [True, False], [1000.0, 2.0]
    ]  # fmt: skip


def test_pieces_of_other_kinds_of_numbers_are_one_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("n\n" + "1\n" * 9000 + "0.5\n")

    assert columns(path, Categories())["n"].tolist() == [1.0] * 9000 + [0.5]


UNREAD = {
    "has the text 'k' in line 3: --categories a takes texts as classes": "a,b\n1,2\nk,3\n",
    "column 'a' is empty in line 3": "a,b\n1,2\n,3\n",
    "has numbers and truth values": "a\n" + "1\n" * 8192 + "true\n",
}
BAD = {
    "line 3 has 1 fields, the first line 2": ("csv", "a,b\n1,2\n3\n"),
    "its first line is numbers: write the names": ("csv", "1,2\n3,4\n"),
    "two columns are called 'a'": ("csv", "a,a\n1,2\n"),
    "is empty": ("csv", ""),
    "cannot be read as csv: 'utf-8'": ("csv", b"a\n\xff\n"),
    "cannot be read as csv: unexpected end": ("csv", 'a\n"1\n'),
    "line 2 is no JSON": ("jsonl", '{"a": 1}\n{"a": \n'),
    "line 1 is no JSON object": ("jsonl", "[1]\n"),
    "line 2 and the first differ: one of them has no 'b'": (
        "jsonl",
        '{"a": 1}\n{"a": 1, "b": 2}\n',
    ),
    "two columns are called 'x'": ("jsonl", '{"x": 1, "x": 2}\n'),
    "cannot be read as jsonl": ("jsonl", '{"x": ' + "[" * 100_000),
}


@pytest.mark.parametrize("said", UNREAD)
def test_a_column_without_numbers_is_refused_where_it_is_taken(tmp_path, said):
    path = tmp_path / "a.csv"
    path.write_text(UNREAD[said])
    found = columns(path, Categories())["a"]

    assert isinstance(found, Unread)
    assert said in found.why


@pytest.mark.parametrize("said", BAD)
def test_what_is_no_table_is_one_line(tmp_path, said):
    suffix, content = BAD[said]
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as error:
        columns(path, Categories())

    assert said in str(error.value)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["[1, 2]", "[3]"], "has lists of different lengths"),
        (["1", "null"], "is empty in line 2"),
        (["1", '"k"'], "has the text 'k' in line 2"),
        (['{"b": 1}', "2"], "has something that is no number"),
        (["1", str(2**80)], "has something that is no number"),
    ],
)
def test_values_that_are_no_array_are_named(tmp_path, values, why):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"a": {value}}}\n' for value in values))

    assert why in columns(path, Categories())["a"].why


def test_a_column_of_texts_says_what_to_do(tmp_path):
    path = write_csv(tmp_path / "a.csv", GOOD)
    for names, options, said in (
        (NAMES, {}, "--categories color takes texts as classes"),
        ({"x": "g*", "labels": "color"}, {"categories": ["color"]}, "--map x=g*: no such column"),
        (NAMES, {"categories": ["colour"]}, "--categories colour: no such column; did you mean"),
        ({"x": "color,f1", "labels": "f0"}, {}, "has the text"),
    ):
        with pytest.raises(GradtoolError) as error:
            losses(path, names, **options)
        assert said in str(error.value)


def test_what_takes_too_much_memory_is_refused(tmp_path, monkeypatch):
    path = write_csv(tmp_path / "a.csv", GOOD)
    monkeypatch.setattr(available_memory, "free", lambda: 100)
    with pytest.raises(UsageError, match=r"columns take about .* of memory, there is room for 100"):
        columns(path, Categories())


def test_class_names_are_kept_with_the_result(run, model, tmp_path):
    import onnx
    from trainings import proto

    model(proto(), "net.onnx")
    write_csv(tmp_path / "a.csv", GOOD)
    line = ("train", "net.onnx", "--data", "a.csv", "--map", "x=f*", "--map", "labels=color",
            "--categories", "color", "--batch", "4")  # fmt: skip
    outcome = run(*line)

    assert (outcome.code, "'x' is 6 columns: f0, f1" in outcome.err) == (0, True)
    kept = {
        each.key: each.value for each in onnx.load(tmp_path / "net.trained.onnx").metadata_props
    }
    assert json.loads(kept["gradtool.classes"]) == {"labels": ["blue", "green", "red"]}
    assert json.loads((tmp_path / "net.train" / "classes.json").read_text()) == {
        "labels": ["blue", "green", "red"]
    }

"""Output of `gradtool predict`: outputs, metrics, and a confusion matrix as table and picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypedDict

import numpy as np

from gradtool.reports.pictures import shown
from gradtool.text.json_schema import Count
from gradtool.text.layout import Column
from gradtool.text.names import escape, shorten
from gradtool.text.table import Table
from gradtool.text.units import format_bytes

Array = np.ndarray[Any, Any]
Classes = Mapping[str, Sequence[str]]  # names in the order of their numbers, by input
NONE: Classes = MappingProxyType({})
CONFUSION = "confusion"
CELL, SIDE = 44, 56  # of the picture: a class, and the room for its names
SMALLEST = 600  # pixels that all cells of many classes take together
WIDE = 12  # characters of a class above its column
MOST = 30  # classes of a table between lines about other things


class Predictions(Protocol):
    """See `gradtool.training.prediction.Predicted`."""

    @property
    def examples(self) -> int: ...
    @property
    def outputs(self) -> Mapping[str, Array]: ...
    @property
    def metrics(self) -> Mapping[str, Any]: ...


class OutputRecord(TypedDict):
    """An output of all examples."""

    name: str
    dtype: str
    shape: list[Count]


class PredictDocument(TypedDict):
    """Outputs and metrics of all examples; a confusion matrix has a row for each label."""

    model: str
    examples: Count
    outputs: list[OutputRecord]
    metrics: dict[str, float | list[list[Count]]]
    written: dict[str, Count]


def is_table(metric: str) -> bool:
    """Whether a metric is a confusion matrix."""
    return metric.partition(":")[0] == CONFUSION


def predict_json(found: Predictions, files: Mapping[str, int], source: str) -> PredictDocument:
    """The predictions and metrics, as a document."""
    return {
        "model": source,
        "examples": found.examples,
        "outputs": [
            {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
            for name, array in found.outputs.items()
        ],
        "metrics": {
            name: value.astype(int).tolist() if isinstance(value, np.ndarray) else value
            for name, value in found.metrics.items()
        },
        "written": dict(files),
    }


def lines(found: Predictions, files: Mapping[str, int]) -> Iterator[str]:
    """The predictions and metrics, a line each."""
    numbers = {n: v for n, v in found.metrics.items() if not isinstance(v, np.ndarray)}
    told = "".join(f"   {name} {value:.6g}" for name, value in numbers.items())
    yield f"{found.examples} examples{told}"
    for path, count in files.items():
        yield f"wrote {path} ({format_bytes(count)})"


def tables(metrics: Mapping[str, Any], classes: Classes = NONE) -> Iterator[Table]:
    """Each confusion matrix: a row for each label, a column for each class that is predicted.

    Both are called by the names of the `classes`, by their input, where these are known.
    """
    for name, matrix in metrics.items():
        if isinstance(matrix, np.ndarray):
            names = _names(name, len(matrix), classes)
            columns = (Column("label", kind="name"), *(Column(shorten(n, WIDE)) for n in names))
            rows = tuple(
                (label, *(str(int(count)) for count in row))
                for label, row in zip(names, matrix, strict=True)
            )
            yield Table(columns, rows, title=f"{name}: labels by row, predictions by column")


def _names(metric: str, count: int, classes: Classes) -> list[str]:
    """The names of so many classes: those of the only input with that number, else numbers."""
    of = metric.split(" ", maxsplit=1)[0].rsplit(":", maxsplit=1)[-1]
    found = [list(n) for n in ([classes[of]] if of in classes else classes.values())]
    found = [names for names in found if len(names) == count]
    named = bool(found) and all(names == found[0] for names in found)
    return [escape(name) for name in found[0]] if named else list(map(str, range(count)))


def small_tables(
    step: int, metrics: Mapping[str, Array], classes: Classes = NONE
) -> Iterator[Table | str]:
    """The confusion matrices of an evaluation; a line in place of one with very many classes."""
    for name, matrix in metrics.items():
        if len(matrix) > MOST:
            told = f"{len(matrix)} classes: gradtool report RUN --html draws it"
            yield f"{name} at step {step}: {told}"
        else:
            yield from tables({f"{name} at step {step}": matrix}, classes)


def confusion_svg(metrics: Mapping[str, Any]) -> str:
    """The first confusion matrix as a picture: a cell is as dark as its share of the row's label.

    Counts stand in cells that have room for them.
    """
    name, matrix = next((n, m) for n, m in metrics.items() if isinstance(m, np.ndarray))
    classes = len(matrix)
    cell = min(CELL, max(SMALLEST / classes, 1.0))
    has_text = cell >= CELL / 2
    size = SIDE + cell * classes + 8
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    cells = []
    for row, column in np.ndindex(classes, classes):
        x, y, share = SIDE + cell * column, SIDE + cell * row, shares[row, column]
        cells.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{cell:.2f}" height="{cell:.2f}" '
            f'fill="#2563eb" fill-opacity="{share:.3f}"><title>label {row}, predicted {column}: '
            f"{int(matrix[row, column])}</title></rect>"
        )
        if has_text:
            ink = 'class="number" fill="#ffffff"' if share > 0.5 else 'fill="currentColor"'
            cells.append(
                f'<text x="{x + cell / 2:.2f}" y="{y + cell / 2 + 4:.2f}" {ink}>'
                f"{int(matrix[row, column])}</text>"
            )
    names = [
        text
        for n in (range(classes) if has_text else ())
        for text in (
            f'<text x="{SIDE + cell * (n + 0.5):.2f}" y="{SIDE - 8}">{n}</text>',
            f'<text x="{SIDE - 14}" y="{SIDE + cell * (n + 0.5) + 4:.2f}">{n}</text>',
        )
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size:.0f} {size:.0f}" '
        f'width="{size:.0f}" height="{size:.0f}" role="img" aria-label="{shown(name)}" '
        f'font-family="system-ui, sans-serif" '
        f'font-size="12" text-anchor="middle" color="#777"><title>{shown(name)}</title>'
        f'<text x="{SIDE + cell * classes / 2:.2f}" y="18" fill="currentColor">predicted</text>'
        f'<text x="{SIDE - 18}" y="18" fill="currentColor">label</text>'
        f'<g fill="currentColor">{"".join(names + cells)}'
        "</g></svg>\n"
    )

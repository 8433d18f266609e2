import itertools

import numpy as np
import pytest

from gradtool.errors import UsageError
from gradtool.training.metrics import metrics


def measured(text, outputs, batch, loss=None, count=4):
    (metric,) = metrics([text], ["labels"])
    total, number = metric.of_batch(loss, outputs, batch, count)
    return metric.finish(total / number)


@pytest.mark.parametrize(
    ("seed", "classes", "top"), [*itertools.product(range(5), [4, 5], [1, 2, 3])]
)
def test_top_k_counts_labels_among_the_highest_scores(seed, classes, top):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((7, classes)).astype(np.float32)
    labels = rng.integers(0, classes, 7)
    expected = np.mean(
        [label in np.argsort(-s)[:top] for s, label in zip(scores, labels, strict=True)]
    )

    assert measured(f"top-{top}", {"y": scores}, {"labels": labels}) == expected
    if top == 1:
        assert measured("accuracy", {"y": scores}, {"labels": labels}) == expected


@pytest.mark.parametrize("axis", [1, 2])
def test_the_axis_of_the_classes_is_found(axis):
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((3, 4, 5))
    labels = scores.argmax(axis)

    assert measured("accuracy", {"y": scores}, {"labels": labels}) == 1


@pytest.mark.parametrize(
    ("name", "label", "said"),
    [("top-3", 0, "3 classes, so it is always 1"), ("accuracy", 3, "a label is 3")],
)
def test_what_classes_leave_no_room_for_is_refused(name, label, said):
    with pytest.raises(UsageError, match=said):
        measured(name, {"y": np.eye(3)}, {"labels": np.array([0, 1, label])})


def test_labels_below_zero_count_for_nothing():
    scores = np.eye(3)

    assert measured("accuracy", {"y": scores}, {"labels": np.array([0, -100, 0])}) == 0.5


def test_scores_that_are_no_numbers_hit_nothing():
    scores = np.full((3, 4), np.nan)

    assert measured("accuracy", {"y": scores}, {"labels": np.zeros(3, int)}) == 0


def test_equal_scores_count_in_the_order_of_classes():
    assert measured("accuracy", {"y": np.zeros((4, 2))}, {"labels": np.array([0, 1, 0, 1])}) == 0.5


def test_mean_absolute_errors_and_perplexity():
    y, labels = np.array([[1.0], [3.0]]), np.array([0.0, 5.0])

    assert measured("mae", {"y": y}, {"labels": labels}) == 1.5
    assert measured("perplexity", {}, {}, loss=2.0) == pytest.approx(np.exp(2))
    assert measured("loss", {}, {}, loss=2.0) == 2
    assert measured("perplexity", {}, {}, loss=1e6) == np.inf


def test_an_output_and_labels_are_named():
    outputs = {"a": np.eye(3), "b": np.eye(3)[::-1]}
    batch = {"labels": np.arange(3), "other": np.arange(3)[::-1]}

    assert measured("accuracy:a", outputs, batch) == 1
    assert measured("accuracy:b:other", outputs, batch) == 1
    assert measured("accuracy:b", outputs, batch) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accuracies", "did you mean 'accuracy'"),
        ("top-0", "did you mean 'top-K'"),
        ("accuracy:z", "no output 'z'"),
        ("accuracy::who", "no labels 'who'"),
        ("accuracy", "no output has the shape that labels [4] need; there are y [3, 3]"),
        ("loss", "the data have no labels"),
        ("no_module_here:f", "no module"),
    ],
)
def test_what_cannot_be_measured_is_one_line(text, said):
    with pytest.raises(UsageError) as error:
        measured(text, {"y": np.eye(3)}, {"labels": np.zeros(4, int)})

    assert said in str(error.value)


def test_a_metric_is_named_once():
    with pytest.raises(UsageError, match="twice the same"):
        metrics(["loss", "loss"], [])


def test_a_function_is_a_metric(tmp_path, monkeypatch):
    (tmp_path / "my_metrics.py").write_text(
        "def spread(outputs, batch):\n    return float(outputs['y'].std())\n"
        "spread.higher_is_better = True\n"
    )
    monkeypatch.chdir(tmp_path)
    (metric,) = metrics(["my_metrics:spread"], [])

    assert metric.higher
    assert metric.of_batch(None, {"y": np.array([0.0, 2.0])}, {}, 4) == (4.0, 4)

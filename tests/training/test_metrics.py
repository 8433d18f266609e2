import itertools
from functools import partial

import numpy as np
import pytest

from gradtool.errors import UsageError, UserCodeError
from gradtool.training.accumulators import UserFunction, of_user, packed, unpacked
from gradtool.training.metrics import deciding, metrics, ranked


def measured(text, outputs, batch, loss=None, count=4):
    (metric,) = metrics([text], ["labels"])
    accumulator = metric.start()
    accumulator.add(metric.of_batch(loss, outputs, batch, count))
    return accumulator.value()


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
    accumulator = metric.start()
    for values in ([0.0, 2.0], [4.0, 4.0, 5.0]):
        accumulator.add(metric.of_batch(None, {"y": np.array(values)}, {}, len(values)))
    assert accumulator.value() == np.std([0, 2, 4, 4, 5])


PAIR = """
class Spread:
    def __init__(self):
        self.seen = []
    def update(self, outputs, batch):
        self.seen += [(outputs["y"], batch["x"])]
    def compute(self):
        return sum(float((y * x).sum()) for y, x in self.seen)
"""


def test_a_class_is_updated_by_each_batch_and_computes_once(tmp_path, monkeypatch):
    (tmp_path / "my_pair.py").write_text(PAIR)
    monkeypatch.chdir(tmp_path)
    (metric,) = metrics(["my_pair:Spread"], [])
    for _ in range(2):
        accumulator = metric.start()
        for values in ([0.0, 2.0], [4.0]):
            y = np.array(values)
            accumulator.add(metric.of_batch(None, {"y": y}, {"x": y + 1}, len(y)))
            y *= 0  # as the arena does
        assert accumulator.value() == 6 + 20


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def __init__(self, more): pass", "takes"),
        ("def update(self, outputs): pass", "update: takes"),
        ("def compute(self, more): pass", "compute: takes"),
        (
            "def update(self, *_): raise KeyError('x')",
            r"update: raised KeyError: 'x' \(wrong.*:6\)",
        ),
        ("def compute(self): return None", r"compute: returned None, .*\(wrong.*:6\)"),
    ],
)
def test_a_class_that_is_no_metric_names_its_line(tmp_path, monkeypatch, code, said):
    monkeypatch.chdir(tmp_path)
    name = f"wrong{abs(hash(code)) % 10**6}"
    (tmp_path / f"{name}.py").write_text(
        "class M:\n    def update(self, *_): pass\n    def compute(self): return 1\n\n\n"
        f"    {code}\n"
    )
    with pytest.raises(UserCodeError, match=said):
        _tried(f"{name}:M")


def _tried(text):
    (metric,) = metrics([text], [])
    metric.rehearse(metric.of_batch(None, {"y": np.ones(2)}, {}, 2))


def test_a_function_of_ragged_outputs_is_told_of_classes():
    accumulator = UserFunction("--metric f", lambda outputs, _: outputs["y"].mean())
    for size in (3, 4):
        accumulator.add(of_user({"y": np.ones((2, size))}, {}, 2))
    with pytest.raises(UsageError, match="update"):
        accumulator.value()


# ------------------------------------------------------------------ held against scikit-learn


def drawn(rng, kind):
    """Outputs, labels and the activation of an output, with ties, and labels that do not count."""
    n = int(rng.integers(20, 60))
    if kind == "numbers":
        shape = [(n,), (n, 1), (n, 3)][rng.integers(3)]
        labels = rng.normal(1e4, 1, shape)
        return labels + rng.normal(size=shape), labels, ""
    if kind == "binary":
        shape = [(n,), (n, 1), (n, 4)][rng.integers(3)]
        labels = rng.integers(0, 2, shape).astype(rng.choice(["int64", "float32"]))
        logits = np.round(rng.normal(size=shape) + labels, 1)
        return (1 / (1 + np.exp(-logits)), labels, "Sigmoid") if rng.random() < 0.5 else (
            logits, labels, "")  # fmt: skip
    classes = int(rng.choice([2, 3, 5]))
    labels = rng.integers(0, classes, (n, 4) if kind == "places" else n)
    logits = rng.normal(size=(*labels.shape, classes))  # ties of a softmax are of its roundings
    logits += np.eye(classes)[labels]
    labels[rng.random(labels.shape) < 0.2] = -100
    labels.flat[:classes] = np.arange(classes)
    form = rng.choice(["", "Softmax", "LogSoftmax"])
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    scores = {"": logits, "Softmax": np.exp(logs), "LogSoftmax": logs}[form]
    return (np.moveaxis(scores, -1, 1) if kind == "places" else scores), labels, str(form)


def by_sklearn(name, scores, labels, form):
    sk = pytest.importorskip("sklearn.metrics")
    if name in ("mae", "rmse", "r2"):
        if name == "rmse":
            return np.sqrt(sk.mean_squared_error(labels.ravel(), scores.ravel()))
        return {"mae": sk.mean_absolute_error, "r2": sk.r2_score}[name](labels, scores)
    if scores.size == labels.size:
        labels, scores = labels.reshape(len(labels), -1), scores.reshape(len(labels), -1)
        chosen = (scores > (0.5 if form else 0)).astype(int)
        macro = "binary" if labels.shape[1] == 1 else "macro"
        return {
            "accuracy": partial(np.mean, chosen == labels),
            "f1": partial(sk.f1_score, labels, chosen, average=macro),
            "f1-micro": partial(sk.f1_score, labels.ravel(), chosen.ravel()),
            "iou": lambda: sk.jaccard_score(labels, chosen, average=macro),
            "auc": partial(sk.roc_auc_score, labels, scores),
            "average-precision": partial(sk.average_precision_score, labels, scores),
        }[name]()
    if labels.ndim > 1:
        scores = np.moveaxis(scores, 1, -1)
    scores, labels = scores[labels >= 0], labels[labels >= 0]
    logs = {"": scores, "LogSoftmax": scores}.get(form)
    logs = np.log(scores) if logs is None else logs
    p = np.exp(logs) / np.exp(logs).sum(-1, keepdims=True)
    chosen, true = scores.argmax(-1), np.eye(p.shape[-1])[labels]
    two = p.shape[-1] == 2
    return {
        "accuracy": partial(sk.accuracy_score, labels, chosen),
        "f1": lambda: sk.f1_score(labels, chosen, average="macro"),
        "f1-micro": lambda: sk.f1_score(labels, chosen, average="micro"),
        "iou": lambda: sk.jaccard_score(labels, chosen, average="macro"),
        "auc": lambda: sk.roc_auc_score(labels, p[:, 1] if two else p, multi_class="ovr"),
        "average-precision": lambda: sk.average_precision_score(
            true[:, 1] if two else true, p[:, 1] if two else p
        ),
        "perplexity": lambda: np.exp(sk.log_loss(labels, p, labels=range(p.shape[-1]))),
        "confusion": lambda: sk.confusion_matrix(labels, chosen),
    }[name]()


NUMBERS, BINARY = ("mae", "rmse", "r2"), (
    "accuracy", "f1", "f1-micro", "iou", "auc", "average-precision")  # fmt: skip
CASES = [
    *itertools.product(["numbers"], NUMBERS),
    *itertools.product(["binary"], BINARY),
    *itertools.product(["classes", "places"], [*BINARY, "perplexity", "confusion"]),
]


@pytest.mark.extra
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_metric_of_any_batches_is_that_of_scikit_learn(kind, name, seed):
    rng = np.random.default_rng(seed)
    scores, labels, form = drawn(rng, kind)
    (metric,) = metrics([name], ["labels"], activations={"y": form}, refused=())
    ends = np.sort(rng.integers(1, len(labels), 3))
    batches = [
        metric.of_batch(None, {"y": y}, {"labels": t}, len(t))
        for y, t in zip(np.split(scores, ends), np.split(labels, ends), strict=True)
        if len(t)
    ]
    accumulator = metric.start()
    for (state,) in unpacked(packed([[each] for each in batches])):
        accumulator.add(state)

    expected = by_sklearn(name, scores, labels, form)
    np.testing.assert_allclose(accumulator.value(), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "scores", "labels", "said"),
    [
        ("auc", np.ones((4, 1)), np.ones((4, 1)), "needs labels of two classes"),
        ("f1", np.ones((4, 1)), np.full((4, 1), 2.0), "0 or 1 is needed"),
        ("perplexity:y", np.ones((4, 1)), np.ones((4, 1)), "needs scores of several classes"),
        ("rmse:y", np.ones((4, 2)), np.ones((4, 1)), "has other sizes"),
        ("iou:y", np.ones((4, 2)), np.ones((3, 2)), "has no axis of classes"),
    ],
)
def test_labels_that_a_metric_cannot_take_are_one_line(name, scores, labels, said):
    with pytest.raises(UsageError, match=said):
        measured(name, {"y": scores}, {"labels": labels})


@pytest.mark.parametrize(
    ("given", "first"),
    [(["confusion"], "loss"), (["confusion", "accuracy"], "accuracy"), (["f1", "confusion"], "f1"),
     ([], "loss")],
)  # fmt: skip
def test_a_number_tells_which_weights_are_best(given, first):
    assert deciding(metrics(ranked(given), ["labels"])).name == first

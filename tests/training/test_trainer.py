"""The loop: steps, parts of steps, loss scales, evaluations, and what is written in the end."""

import itertools
import math

import numpy as np
import onnx
import pytest
from conftest import build
from onnx import numpy_helper
from trainings import drawn, examples, lines, load, proto, weights

import gradtool as gt
from gradtool.errors import GradtoolError, UsageError
from gradtool.training.callbacks import Watcher
from gradtool.training.sampler import Order
from gradtool.training.schedules import schedule

DATA, TEST = examples(50), examples(21, 5)
SUMMED = {"x": DATA["x"]}


def fitted(kind="dense", data=DATA, evaluate=None, run=None, **options):
    trainer = gt.Trainer(load(kind), **{"batch": 8, "lr": 0.1} | options)
    return trainer, trainer.fit(data, evaluate=evaluate, run=run)


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", range(8))
def test_steps_are_those_of_a_session(case):
    """The same batches, rates and draws fed one by one."""
    kind, options = drawn(8, seed=3)[case]
    options |= {"micro_batches": 1, "loss_scale": None, "train_mode": False, "ema": None}
    trainer, history = fitted(kind, **options)
    updates = {n: options[n] for n in ("optimizer", "clip_norm", "lora", "lr_scale")}
    step = gt.grad(load(kind), lora_seed=options["seed"], **updates)
    order = Order(50, 8, options["seed"], options["shuffle"])
    rates = schedule(
        options["schedule"], options["lr"], warmup=options["warmup"], steps=options["steps"]
    )
    batches = itertools.islice(
        itertools.chain.from_iterable(map(order.epoch, itertools.count())), options["steps"]
    )
    with gt.Session(step, kernels=options["kernels"]) as session:
        expected = [
            session.step({n: a[i] for n, a in DATA.items()} | {"lr": rates(number)}).loss
            for number, i in enumerate(batches)
        ]
        values = session.values()

    assert list(history.losses) == expected
    for name, value in trainer.session.values().items():
        assert value.tobytes() == values[name].tobytes()
    trainer.close()


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("optimizer", "parts", "scale"),
    [*itertools.product(["sgd", "adamw"], [2, 4, 8], [None, 1024.0, "dynamic"])],
)
def test_parts_of_a_step_equal_the_whole_to_rounding(optimizer, parts, scale):
    options = {"optimizer": optimizer, "steps": 10, "lr": 0.01}
    whole, expected = fitted(**options)
    trainer, history = fitted(**options, micro_batches=parts, loss_scale=scale)

    assert history.losses == pytest.approx(expected.losses, rel=1e-5)
    for name, value in whole.session.values("w*", "b*").items():
        np.testing.assert_allclose(trainer.session.values(name)[name], value, rtol=2e-4, atol=1e-6)
    trainer.close()
    whole.close()


def test_parts_of_a_sum_are_added():
    options = {"loss": "0.125*sum", "steps": 6, "lr": 0.01, "optimizer": "sgd"}
    given = {"x": DATA["x"]}
    whole, expected = fitted(data=given, **options)
    trainer, history = fitted(data=given, **options, micro_batches=4)

    assert history.losses == pytest.approx(expected.losses, rel=1e-5)
    for name, value in whole.session.values("w1", "w2").items():
        np.testing.assert_allclose(trainer.session.values(name)[name], value, rtol=1e-5, atol=1e-6)
    trainer.close()
    whole.close()


class Said(Watcher):
    def __init__(self):
        self.lines, self.skips, self.found = [], [], []

    def said(self, line):
        self.lines.append(line)

    def skipped(self, step, scale):
        self.skips.append((step, scale))

    def evaluated(self, step, _found, *, best):
        self.found.append((step, best))


@pytest.mark.parametrize("how", [{"micro_batches": 2}, {"evaluate": {"x": np.ones((5, 6))}}])
def test_a_loss_that_mixes_examples_is_refused_in_parts_and_names_the_node(how):
    made = build(
        """net (float[batch, 6] x) => (float loss) {
        y = MatMul (x, w)
        s = ReduceSum <keepdims = 0> (y)
        loss = Mul (s, s)
    }""",
        w=np.ones((6, 1), np.float32),
    )
    evaluate = how.get("evaluate")
    with (
        gt.Trainer(gt.load(made), batch=4, steps=2, lr=1e-6, **{
            name: value for name, value in how.items() if name != "evaluate"
        }) as trainer,
        pytest.raises(UsageError, match=r"does not follow from those of its parts \(Mul"),
    ):  # fmt: skip
        trainer.fit({"x": DATA["x"]}, evaluate=evaluate)


@pytest.mark.parametrize("scale", [1.0, 128.0, 3.0, 2.0**20])
def test_a_loss_scale_changes_nothing_but_rounding(scale):
    _, expected = fitted(steps=8)
    _, history = fitted(steps=8, loss_scale=scale)

    if math.log2(scale) % 1 == 0:
        assert history.losses == expected.losses
    assert history.losses == pytest.approx(expected.losses, rel=1e-5)


def test_a_step_with_an_infinity_is_skipped_and_counted(tmp_path):
    """That of `b2`, 8 of a sum of 8 examples, is one at 2¹²⁷."""
    trainer, history = fitted(data=SUMMED, loss="sum", steps=4, loss_scale=1.7e38, run=tmp_path)
    first = weights()

    assert history.skipped == 4
    assert [line.get("skipped") for line in lines(tmp_path / "metrics.jsonl")] == [True] * 4
    for name, value in trainer.session.values("w1", "w2").items():
        np.testing.assert_array_equal(value, first[name])
    trainer.close()


def test_a_dynamic_scale_falls_until_gradients_are_finite(monkeypatch, tmp_path):
    monkeypatch.setattr("gradtool.training.scaling.FIRST", 2.0**127)
    monkeypatch.setattr("gradtool.training.scaling.INTERVAL", 3)
    trainer, history = fitted(
        data=SUMMED, loss="sum", steps=12, loss_scale="dynamic", lr=1e-3, run=tmp_path
    )
    scales = [line["loss_scale"] for line in lines(tmp_path / "metrics.jsonl")]
    skipped = [line.get("skipped", False) for line in lines(tmp_path / "metrics.jsonl")]

    assert 0 < history.skipped == sum(skipped) < 12
    for (now, after), was_skipped in zip(itertools.pairwise(scales), skipped, strict=False):
        assert after == now / 2 if was_skipped else after in (now, 2 * now)
    assert any(b == 2 * a for a, b in itertools.pairwise(scales))
    trainer.close()


def test_gradients_that_are_no_numbers_at_any_scale_end_it():
    made = build(
        """net (float[batch, 6] x) => (float loss) {
        y = MatMul (x, w)
        r = Sqrt (y)
        loss = ReduceSum <keepdims = 0> (r)
    }""",
        w=-np.ones((6, 1), np.float32),
    )
    given = {"x": np.ones((8, 6), np.float32)}
    with (
        gt.Trainer(gt.load(made), batch=8, steps=200, loss_scale="dynamic") as trainer,
        pytest.raises(GradtoolError, match="not finite at any loss scale"),
    ):
        trainer.fit(given)


def test_a_loss_that_is_no_number_ends_it(tmp_path):
    with (
        gt.Trainer(load(), batch=8, steps=50, lr=1e30, checkpoint_every=1) as trainer,
        pytest.raises(GradtoolError, match=r"the loss is \w+ in step \d+: try a lower") as error,
    ):
        trainer.fit(DATA, run=tmp_path)

    assert "the checkpoint of step" in str(error.value)


@pytest.mark.parametrize("parts", [1, 2])
def test_an_average_is_that_of_torch(parts):
    trainer, _ = fitted(steps=1, ema=0.75, micro_batches=parts)
    first = weights()
    now = trainer.session.values("w1", "w1_average")

    expected = first["w1"] + (now["w1"] - first["w1"]) * np.float32(0.25)
    np.testing.assert_array_equal(now["w1_average"], expected)
    trainer.close()


def test_the_average_of_all_steps_is_written(tmp_path):
    trainer, _ = fitted(steps=9, ema=0.5)
    trainer.save(tmp_path / "ema.onnx", averages=True)
    values = trainer.session.values("*_average")
    written = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in onnx.load(tmp_path / "ema.onnx").graph.initializer
    }

    assert set(written) == set(weights())
    for name, value in values.items():
        np.testing.assert_array_equal(written[name.removesuffix("_average")], value)
    trainer.close()


@pytest.mark.parametrize("size", [3, 8, 21, 64])
def test_an_evaluation_is_over_all_examples_whatever_the_batch(size):
    trainer, history = fitted(
        steps=3, batch=min(size, 50), lr=0.0, evaluate=TEST, metric=["loss", "accuracy"]
    )
    (_, found), *_ = history.evaluations
    alone = trainer.session.evaluate(TEST)

    assert found["loss"] == pytest.approx(alone.loss, rel=1e-6)
    assert found["accuracy"] == np.mean(alone.outputs["y"].argmax(1) == TEST["labels"])
    trainer.close()


@pytest.mark.parametrize("every", [None, 2, 5])
def test_it_is_evaluated_every_so_often_and_in_the_end(every):
    watcher = Said()
    with gt.Trainer(load(), batch=8, steps=14, lr=0.1, every=every) as trainer:
        history = trainer.fit(DATA, evaluate=TEST, watcher=watcher)

    due = [step for step in range(1, 15) if step % (every or 6) == 0]
    assert [step for step, _ in history.evaluations] == [*due, *([14] if 14 not in due else [])]
    values = [found["loss"] for _, found in history.evaluations]
    expected = [value < min(values[:number], default=np.inf) for number, value in enumerate(values)]
    assert [best for _, best in watcher.found] == expected
    assert history.best.value == min(values)


def test_the_best_weights_are_written(tmp_path):
    options = {"steps": 40, "lr": 0.3, "optimizer": "sgd", "every": 1, "metric": ["accuracy"]}
    trainer, history = fitted(evaluate=TEST, run=tmp_path, **options)
    trainer.save(tmp_path / "best.onnx", best=True)
    with gt.Session(gt.grad(gt.load(tmp_path / "best.onnx"))) as session:
        y = session.evaluate(TEST).outputs["y"]

    values = [found["accuracy"] for _, found in history.evaluations]
    assert history.best.step == 1 + int(np.argmax(values)) < 40
    assert np.mean(y.argmax(1) == TEST["labels"]) == max(values)
    trainer.close()


@pytest.mark.parametrize("patience", [1, 3])
def test_it_stops_where_nothing_gets_better(patience):
    with gt.Trainer(load(), batch=8, steps=60, lr=0.0, every=1, patience=patience) as trainer:
        history = trainer.fit(DATA, evaluate=TEST)

    assert history.ended == "patience"
    assert history.step == 1 + patience


@pytest.mark.sample(3)
@pytest.mark.parametrize("plan", ["keep", "mirror", "sqrt", "optimal", "reorder"])
def test_every_plan_trains_to_the_same_bits(plan):
    trainer, history = fitted("normed", steps=9, plan=plan, train_mode=True)
    other, expected = fitted("normed", steps=9, train_mode=True)

    assert history.losses == expected.losses
    for name, value in trainer.session.values().items():
        assert value.tobytes() == other.session.values(name)[name].tobytes()
    trainer.close()
    other.close()


def test_draws_differ_from_step_to_step_and_by_the_seed():
    options = {"steps": 6, "lr": 0.0, "train_mode": True, "batch": 50, "shuffle": False}
    runs = [fitted("normed", seed=seed, **options)[1].losses for seed in (0, 0, 1)]

    assert runs[0] == runs[1] != runs[2]
    assert len(set(runs[0])) == 6


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bach": 8}, "Trainer takes no 'bach'; did you mean 'batch'"),
        ({"epochs": 1, "steps": 1}, "epochs cannot be combined with steps"),
        ({"loss_scale": "high"}, "a loss scale is a positive number, or dynamic"),
        ({"loss_scale": -1}, "a loss scale is a positive number, or dynamic"),
        ({"ema": 1.0}, "the decay of an average is from 0 to below 1"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(options, said):
    with pytest.raises(UsageError) as error:
        gt.Trainer(load(), **options)

    assert said in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss_scale": 1e39}, "a loss scale of 1e+39 is more than float32 has"),
        ({"batch": 8, "micro_batches": 3}, "a batch of 8 has no 3 parts of the same size"),
        ({"head_grads": True}, "to train takes a loss"),
        ({"schedule": "cosin"}, "no schedule 'cosin'"),
        ({"optimizer": "adm"}, "no optimizer 'adm'"),
        ({"plan": "nothing"}, "no strategy 'nothing'"),
    ],
)
def test_what_does_not_fit_the_data_is_one_line(options, said):
    with pytest.raises(UsageError) as error, gt.Trainer(load(), **options) as trainer:
        trainer.fit(DATA)

    assert said in str(error.value)


def test_a_schedule_that_ends_has_to_know_where():
    with (
        gt.Trainer(load(), schedule="cosine") as trainer,
        pytest.raises(UsageError, match="has to know the end: give steps"),
    ):
        trainer.fit(lambda: iter([DATA]))


def test_a_training_graph_is_no_forward_model():
    training = gt.grad(load(), optimizer="sgd")

    with pytest.raises(UsageError, match="give the model that it was made from"):
        gt.Trainer(training)


def test_nothing_is_trained_before_a_fit(tmp_path):
    trainer = gt.Trainer(load())

    for call in (lambda: trainer.session, lambda: trainer.save(tmp_path / "a.onnx")):
        with pytest.raises(UsageError, match="nothing is trained yet"):
            call()
    with pytest.raises(UsageError, match="takes the folder of a run"):
        trainer.fit(DATA, resume=True)


def test_nothing_else_of_the_file_changes(tmp_path):
    made = proto()
    made.producer_name = "somebody"
    trainer = gt.Trainer(gt.load(made), batch=8, steps=2)
    trainer.fit(DATA)
    trainer.save(tmp_path / "a.onnx")
    trainer.close()
    written = onnx.load(tmp_path / "a.onnx")
    for tensor, before in zip(written.graph.initializer, made.graph.initializer, strict=True):
        assert tensor.raw_data != before.raw_data
        tensor.CopyFrom(before)

    shape = [[(n.op_type, *n.input, *n.output) for n in g.graph.node] for g in (written, made)]
    assert shape[0] == shape[1]
    assert list(written.graph.input) == list(made.graph.input)
    assert list(written.graph.output) == list(made.graph.output)
    assert written.producer_name == "somebody"


TWO = """net (float[batch, 6] x) => (float[batch, 5] a, float[batch, 3] b) {
    a = MatMul (x, w)
    b = MatMul (a, v)
}"""


def test_of_two_outputs_one_is_named():
    rng = np.random.default_rng(0)
    w, v = (rng.normal(size=size).astype(np.float32) for size in ((6, 5), (5, 3)))
    data = {"x": examples(8)["x"], "labels": np.zeros(8, np.int64)}
    with (
        gt.Trainer(gt.load(build(TWO, w=w, v=v)), batch=4, steps=1) as trainer,
        pytest.raises(UsageError, match=r"may be of b as well .*name it with --loss, as ce:b"),
    ):
        trainer.fit(data)
    with gt.Trainer(gt.load(build(TWO, w=w, v=v)), batch=4, steps=1, loss="ce:b") as trainer:
        assert trainer.fit(data).step == 1


def test_a_size_that_data_do_not_decide_is_named():
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]>
        g (float[batch, n] x, float[batch, 5] z) => (y) <float[5] w = {2, 1, 1, 1, 1},
            int64[1] far = {9223372036854775807}, int64[1] one = {1}> {
            s = Shape <start = 1> (x)  last = Neg (s)  p = Mul (z, w)
            q = Slice (p, last, far, one, one)  y = Add (q, x) }"""
    )
    data = {"x": np.ones((4, 3), "f"), "z": np.ones((4, 5), "f"), "labels": np.ones((4, 3), "f")}
    with (
        gt.Trainer(gt.load(model), loss="mse:y", batch=2, steps=1, optimizer="sgd") as trainer,
        pytest.raises(gt.UsageError, match="sizes without values"),
    ):
        trainer.fit(data)

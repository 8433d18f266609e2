"""Stages of a model come to what one process comes to, by forks that stand for ranks."""

import json

import numpy as np
import pytest
import stage_cases
from conftest import build, sampled
from forked_ranks import on_ranks, supported
from rank_cases import DATA, difference, trained

import gradtool as gt
from gradtool.errors import UsageError

pytestmark = supported
CLOSE = 1e-9  # relative, in float64: sums in another order


def together(ranks, stages, case, options=None, seed=0, **how):
    """What the ranks of a drawn case come to; what is trained is that of the first line."""

    def work(group):
        model, drawn, _ = stage_cases.drawn(ranks, stages, case, seed)
        return trained(model, drawn | (options or {}), group, **how)

    found = on_ranks(ranks, work)
    whole = {name: array for each in found[:stages] for name, array in each[2].items()}
    return found, (*found[0][:2], whole)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("ranks", "stages", "case"),
    sampled([(2, 2, 0), (2, 2, 3), (4, 4, 0), (4, 2, 1), (4, 2, 2)], 3),
)
def test_stages_train_as_one_process_does(ranks, stages, case):
    model, _, alone = stage_cases.drawn(ranks, stages, case)
    expected = trained(model, alone)
    found, whole = together(ranks, stages, case)

    assert difference(whole, expected) < CLOSE
    assert {name for name in expected[2] if "_grad" not in name} <= whole[2].keys()
    for rank, each in enumerate(found):
        assert each[:2] == found[0][:2]
        for name, array in each[2].items():
            assert array.tobytes() == found[rank % stages][2][name].tobytes(), name


@pytest.mark.parametrize("case", sampled(range(2)))
def test_without_a_norm_one_line_has_the_bits_of_one_process(case):
    options = {"clip_norm": None, "loss_scale": 8, "steps": 10}
    model, _, alone = stage_cases.drawn(2, 2, case)
    expected = trained(model, alone | options)
    _, whole = together(2, 2, case, options)

    assert whole[:2] == expected[:2]
    for name, array in expected[2].items():
        assert array.tobytes() == whole[2][name].tobytes(), name


def tied():
    """A table at both ends of a model, as a language model has it."""
    rng = np.random.default_rng(4)
    weights = {"table": (7, 6), **{f"w{i}": (6, 6) for i in range(3)}}
    arrays = {name: rng.standard_normal(shape) / 2 for name, shape in weights.items()}
    return gt.load(build("""net (int64[batch, 5] ids) => (double[batch, 5, 7] y) {
        x = Gather (table, ids)
        a = MatMul (x, w0)
        b = Tanh (a)
        c = MatMul (b, w1)
        d = Tanh (c)
        e = MatMul (d, w2)
        f = Add (e, x)
        head = Transpose <perm = [1, 0]> (table)
        y = MatMul (f, head)
    }""", **arrays))  # fmt: skip


def words():
    rng = np.random.default_rng(2)
    return {"ids": rng.integers(0, 7, (40, 5)), "labels": rng.integers(0, 7, (40, 5))}


@pytest.mark.parametrize("stages", sampled([2, 3]))
def test_a_parameter_of_several_stages_belongs_to_the_first(stages):
    options = {"batch": 8, "micro_batches": 4, "steps": 20, "lr": 0.05, "optimizer": "adamw"}

    def fitted(options, *group):
        with gt.Trainer(tied(), **options) as trainer:
            history = trainer.fit(words(), **dict(zip(["group"], group, strict=False)))
            return history.losses, history.evaluations, trainer.session.values()

    expected = fitted(options)
    found = on_ranks(stages, lambda group: fitted(options | {"stages": stages}, group))
    owners = [rank for rank, each in enumerate(found) if "table" in each[2]]
    whole = {name: array for each in found for name, array in each[2].items()}

    assert owners == [0]
    assert found[0][0] == expected[0]
    assert difference((*found[0][:2], whole), expected) == 0


@pytest.mark.exhaustive
def test_a_checkpoint_is_gone_on_with_in_other_stages_and_in_none(tmp_path):
    every = {"checkpoint_every": 10, "micro_batches": 2, "sync_batchnorm": False}
    case, seed = 2, 1
    model, _, alone = stage_cases.drawn(4, 2, case, seed)
    whole = trained(model, alone | every)
    folder = tmp_path / "run"
    ways = [(4, 2, 10), (1, 1, 20), (4, 4, 30), (1, 1, 50)]
    for ranks, stages, steps in ways:

        def work(group, stages=stages, steps=steps):
            model, options, _ = stage_cases.drawn(4, 2, case, seed)
            options |= every | {"stages": stages, "steps": steps}
            return trained(model, options, group, run=folder, resume=steps > 10)

        found = on_ranks(ranks, work)[0]

    journal = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [entry["loss"] for entry in journal if "loss" in entry]
    np.testing.assert_allclose(losses, whole[0], rtol=1e-8)
    for name, array in whole[2].items():
        np.testing.assert_allclose(found[2][name], array, rtol=1e-7, atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("more", sampled([{}, {"lora": 2, "ema": None}]))
def test_the_first_rank_writes_the_whole_model(tmp_path, more):
    options = {"steps": 6, "ema": 0.9, "every": 3, "clip_norm": None, **more}
    means = (False, True) if options["ema"] else (False,)
    model, _, alone = stage_cases.drawn(2, 2, 1)
    with gt.Trainer(model, **alone | options) as trainer:
        trainer.fit(DATA, evaluate=DATA, run=tmp_path / "one")
        for averages in means:
            trainer.save(tmp_path / f"one{averages}.onnx", averages=averages)
        trainer.save(tmp_path / "onebest.onnx", best=True)

    def work(group):
        model, drawn, _ = stage_cases.drawn(2, 2, 1)
        with gt.Trainer(model, **drawn | options) as trainer:
            trainer.fit(DATA, evaluate=DATA, run=tmp_path / "two", group=group)
            if group.rank == 0:
                for averages in means:
                    trainer.save(tmp_path / f"two{averages}.onnx", averages=averages)
                trainer.save(tmp_path / "twobest.onnx", best=True)

    on_ranks(2, work)
    for what in (*map(str, means), "best"):
        first, second = (tmp_path / f"{name}{what}.onnx" for name in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == sorted(
        p.name for p in (tmp_path / "two").iterdir()
    )


REFUSED = [
    (2, {"stages": 3}, "--stages 3 takes 3 ranks or a multiple of them, not 2"),
    (2, {"stages": 2, "shard": "optimizer"}, "every stage is on one rank, which has all of its"),
    (4, {"stages": 2, "shard": "gradients"}, "take --shard optimizer"),
    (2, {"stages": 2, "memory": 10**9}, "leave it out with stages"),
    (2, {"stages": 2, "sync_batchnorm": True}, "every stage is on one rank"),
    (4, {"stages": 4, "wrt": ("wide",)}, "only 1 places of the model have any"),
    (2, {"stages": 2, "batch": 7, "micro_batches": 2}, "a batch of 7 has no 2 parts"),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("ranks", "options", "said"), REFUSED)
def test_what_does_not_go_with_stages_is_refused_in_a_line(ranks, options, said):
    model, _, _ = stage_cases.drawn(4, 4, 0)

    def work(group):
        with gt.Trainer(model, loss="sum:y", train_mode=True, **options) as trainer:
            trainer.fit({"x": DATA["x"]}, group=group)

    with pytest.raises(UsageError) as caught:
        on_ranks(ranks, work)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_node_that_draws_by_itself_is_refused():
    model = gt.load(build("""net (double[batch, 6] x) => (double[batch, 3] y) {
        noise = RandomNormalLike (x)
        a = Add (x, noise)
        b = MatMul (a, v)
        c = Tanh (b)
        y = MatMul (c, w)
    }""", v=np.ones((6, 6)), w=np.ones((6, 3))))  # fmt: skip

    def work(group):
        with gt.Trainer(model, loss="ce", stages=2, batch=8, steps=1) as trainer:
            trainer.fit(DATA, group=group)

    with pytest.raises(UsageError, match="draws random numbers by itself"):
        on_ranks(2, work)

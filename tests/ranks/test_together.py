"""Several ranks come to what one process comes to, by forks that stand for ranks."""

import numpy as np
import pytest
from conftest import build, sampled, swept
from forked_ranks import on_ranks, supported
from rank_cases import DATA, difference, drawn, trained
from trainings import load

import gradtool as gt
from gradtool.errors import GradtoolError, UsageError
from gradtool.ranks.group import share
from gradtool.training import reduction
from gradtool.training.reduction import require_same

pytestmark = supported
OPEN = 0
CLOSE = 1e-9  # relative, in float64: sums in another order


def together(ranks, case, seed=0, options=None, **how):
    """What each rank of a drawn case comes to."""

    def work(group):
        model, drawn_options, _ = drawn(ranks, case, seed)
        return trained(model, drawn_options | (options or {}), group, **how)

    return on_ranks(ranks, work)


@pytest.mark.exhaustive
@pytest.mark.parametrize("ranks", sampled([2, 4]))
@pytest.mark.parametrize("case", swept(6, 2))
def test_ranks_train_as_one_process_does(ranks, case, tmp_path):
    model, _, alone = drawn(ranks, case)
    expected = trained(model, alone)
    found = together(ranks, case, run=tmp_path / "run")

    for each in found:
        assert difference(each, expected) < CLOSE
        for name, array in each[2].items():
            assert array.tobytes() == found[0][2][name].tobytes(), name


def test_sums_are_begun_in_buckets_of_several_or_of_one_that_is_larger(monkeypatch):
    monkeypatch.setattr(reduction, "BUCKET", 300)

    def work(group):
        model, options, _ = drawn(2, 0)
        trained(model, options | {"steps": 2, "ema": None}, group)
        return group.begun

    first, second = on_ranks(2, work)

    assert first == second
    assert 2 < len(first) < 2 * 4  # of four sums some are together
    assert sum(size for _, size in first) >= 2 * (6 * 5 + 5 + 5 * 3 + 3)


def test_running_statistics_are_the_mean_of_those_of_ranks():
    data = {**DATA, "x": DATA["x"].astype(np.float32)}
    options = {"batch": 8, "steps": 1, "lr": 0.0, "train_mode": True, "shuffle": False}

    def work(group):
        with gt.Trainer(load("normed"), **options) as trainer:
            trainer.fit(data, group=group)
            return trainer.session.values("mean", "var")

    found = on_ranks(2, work)
    halves = []
    for half in (slice(0, 4), slice(4, 8)):
        with gt.Trainer(load("normed"), **options | {"batch": 4}) as trainer:
            trainer.fit({name: array[half] for name, array in data.items()})
            halves.append(trainer.session.values("mean", "var"))

    for name in ("mean", "var"):
        expected = (halves[0][name] + halves[1][name]) / 2
        for each in found:
            np.testing.assert_allclose(each[name], expected, rtol=1e-6)


@pytest.mark.exhaustive
def test_a_checkpoint_is_gone_on_with_on_another_number_of_ranks(tmp_path):
    every = {"checkpoint_every": 10, "micro_batches": 1, "batch": 8}
    model, _, alone = drawn(4, OPEN, 3)
    whole = trained(model, alone | every)
    folder = tmp_path / "run"
    for ranks, steps in ((4, 20), (2, 30), (1, 50)):

        def work(group, steps=steps):
            model, options, _ = drawn(4, OPEN, 3)
            resume = group.size < 4
            return trained(
                model, options | every | {"steps": steps}, group, run=folder, resume=resume
            )

        found = on_ranks(ranks, work)[0]

    np.testing.assert_allclose(found[0], whole[0][30:], rtol=CLOSE)
    for name, array in whole[2].items():
        if name in found[2]:
            np.testing.assert_allclose(found[2][name], array, rtol=1e-7, atol=1e-9)


def test_ranks_that_hold_other_bits_are_named():
    def work(group):
        values = {"a": np.zeros(3), "b": np.full(2, float(group.rank == 2))}
        require_same(group, values, 7)

    with pytest.raises(GradtoolError, match="'b' is not the same on ranks 0 and 2 after step 7"):
        on_ranks(3, work)


def test_a_batch_that_ranks_do_not_divide_is_refused():
    with pytest.raises(UsageError, match=r"a batch of 8 has no 1 parts .* on 3 ranks"):
        together(3, OPEN, options={"micro_batches": 1})


@pytest.mark.exhaustive
def test_only_the_first_rank_writes(tmp_path):
    model, options, alone = drawn(2, 0)
    together(2, 0, run=tmp_path / "run")
    trained(model, alone, run=tmp_path / "one")
    written, expected = (sorted(p.name for p in (tmp_path / d).iterdir()) for d in ("run", "one"))

    assert written == expected
    steps = (tmp_path / "run" / "metrics.jsonl").read_text().count('"lr"')
    assert steps == options["steps"]


@pytest.mark.parametrize("count", [0, 1, 5, 17])
@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_shares_are_all_of_it_and_differ_by_one(count, size):
    parts = [share(count, rank, size) for rank in range(size)]

    assert [i for part in parts for i in range(count)[part]] == list(range(count))
    lengths = [part.stop - part.start for part in parts]
    assert max(lengths) - min(lengths) <= 1


def test_gradients_are_on_their_way_while_backward_goes_on():
    """An evaluation, which tells whether losses are means, is bound before the first step."""
    model = gt.load(build("""net (double[batch, 6] x) => (double[batch, 6] y) {
        a = MatMul (x, w0)
        b = MatMul (a, w1)
        c = MatMul (b, w2)
        y = MatMul (c, w3)
    }""", **{f"w{i}": np.eye(6) for i in range(4)}))  # fmt: skip

    def work(group):
        with gt.Trainer(model, loss="ce", steps=1, batch=4) as trainer:
            trainer.fit(DATA, group=group)
            return [name for name in trainer.session.spans if "grad" in name]

    for order in on_ranks(2, work):
        assert [name[:2] for name in order] == ["w3", "w2", "w1", "w0"]

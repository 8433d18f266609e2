"""Tables by rows on ranks come to what one process comes to, that has them whole."""

import errno
import json
import os
from functools import partial

import numpy as np
import onnx
import pytest
from conftest import build, sampled, swept
from forked_ranks import on_ranks, supported
from rank_cases import difference
from table_cases import EXAMPLES, drawn, trained

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.io import safetensors
from gradtool.training import row_tables
from gradtool.training.callbacks import Watcher
from gradtool.training.graphs import Recipe, graphs_of
from gradtool.training.layouts import OnPaper, PaperTraining, layout
from gradtool.training.links import Link, step_seconds
from gradtool.training.options import TrainOptions
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.training import training_graph

pytestmark = supported
CLOSE = 1e-9  # relative, in float64: sums in another order


@pytest.mark.exhaustive
@pytest.mark.parametrize("ranks", sampled([2, 4]))
@pytest.mark.parametrize("case", swept(6, 1))
def test_fifty_steps_are_those_of_one_process(case, ranks):
    model, data, options, several = drawn(case)
    expected = trained(model, data, options)

    found = on_ranks(ranks, lambda group: trained(model, data, options | several, group))
    short = options | several | {"steps": 10, "every": 20}
    again = on_ranks(ranks, lambda group: trained(model, data, short, group))
    third = on_ranks(ranks, lambda group: trained(model, data, short, group))

    for each in found:
        assert difference((*each[:2], {}), (*expected[:2], {})) < CLOSE
    assert difference(found[0][:3], expected[:3]) < CLOSE
    for one, other in zip(again, third, strict=True):
        assert one[:2] == other[:2]
        for name, array in one[2].items():
            assert array.tobytes() == other[2][name].tobytes()


STALE = 2
SHARP = {"optimizer": "sgd", "lr": 0.3, "no_decay": [], "micro_batches": 1, "shard": "none",
         "plan": "keep", "clip_value": None, "ema": None, "shard_tables": ["table*"]}  # fmt: skip


def watched(model, data, options, group):
    """By table and step, what forward has read of it: rows and their numbers; and the tables."""
    from gradtool.ops.ranks import kernel_rows as module

    read, found, history = module._read, [], []

    def reading(own, rows, into, *rest):
        read(own, rows, into, *rest)
        if rest[1]:  # a step that keeps a cache
            found.append((group.step, rest[2], rows.copy(), into.copy(), group.rank))

    def after(server):
        settle = server.settle

        def settled():
            settle()
            history.append({n: server._value(n)[1:].copy() for n in server.tables.sums})

        return settled

    module._read = reading
    with gt.Trainer(gt.load(model), **options) as trainer:
        from gradtool.training import open_rank as training

        made = training._server

        def serving(*given):
            server = made(*given)
            history.append({n: server._value(n)[1:].copy() for n in server.tables.sums})
            server.settle = after(server)
            return server

        training._server = serving
        trainer.fit(data, group=group)
    return found, history


@pytest.mark.parametrize("ranks", sampled([2, 4]))
@pytest.mark.parametrize("case", sampled(range(2)))
def test_a_row_is_never_older_than_asked_and_some_are_as_old(case, ranks):
    model, data, options, several = drawn(case, seed=1)
    options = options | several | SHARP | {"staleness": STALE, "steps": 12}

    found = on_ranks(ranks, lambda group: watched(model, data, options, group))

    whole = [
        {name: np.concatenate([history[step][name] for _, history in found]) for name in tables}
        for step, tables in enumerate(found[0][1])
    ]
    ages = set()
    for reads, _ in found:
        for step, table, rows, values, _ in reads:
            for row, value in zip(rows, values, strict=True):
                had = [
                    age for age in range(step)
                    if np.array_equal(whole[step - 1 - age][table][row], value)
                ]  # fmt: skip
                assert had, (table, row, step)
                ages.add(min(had))
    assert max(ages) == STALE


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_stale_rows_train_and_fresh_ones_of_one_step_are_exact(optimizer):
    """Before anything is updated no row is old: sums that came in no order are those of one."""
    model, data, options, several = drawn(3, seed=2)
    options |= {"optimizer": optimizer, "no_decay": [], "clip_value": None, "steps": 1, "ema": None}
    several |= {"staleness": 3, "shard_tables": ["table*"], "plan": "keep"}
    expected = trained(model, data, options)
    found = on_ranks(4, lambda group: trained(model, data, options | several, group))

    assert difference(found[0][:3], expected[:3]) < CLOSE

    long = {"steps": 60}
    first = trained(model, data, options | long)[0]
    stale = on_ranks(4, lambda group: trained(model, data, options | several | long, group))[0][0]
    assert np.mean(stale[-5:]) < np.mean(stale[:5])
    assert abs(np.mean(stale[-5:]) - np.mean(first[-5:])) < 0.1 * np.mean(first[:5])


class Told(Watcher):
    def __init__(self):
        self.lines = []

    def said(self, line):
        self.lines.append(line)


@pytest.mark.exhaustive
def test_means_are_not_evaluated_and_a_line_says_so():
    model, data, options, several = drawn(3, seed=2)
    options |= several | {"optimizer": "sgd", "no_decay": [], "clip_value": None, "steps": 2}
    options |= {"ema": 0.9, "shard_tables": ["table*"]}

    def work(group):
        told = Told()
        with gt.Trainer(gt.load(model), **options) as trainer:
            history = trainer.fit(data, evaluate=data, group=group, watcher=told)
        return [line for line in told.lines if "means" in line], history.evaluations[-1][1]

    for lines, numbers in on_ranks(2, work):
        assert len(lines) == 1
        assert list(numbers) == ["loss"]


def newest(folder):
    """The tensors of the newest checkpoint."""
    return safetensors.load(max(folder.glob("step-*.safetensors"))).arrays


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", sampled(range(2)))
def test_a_checkpoint_has_whole_tables_and_is_gone_on_with_on_other_ranks(case, tmp_path):
    model, data, options, several = drawn(case, seed=3)
    options |= {"optimizer": "adam", "no_decay": [], "clip_value": None, "checkpoint_every": 5}
    several |= {"micro_batches": 1, "loss_scale": None, "shard_tables": ["table*"]}
    whole = trained(model, data, options | {"steps": 40}, run=tmp_path / "whole")
    folder = tmp_path / "run"
    for ranks, steps, how in ((4, 10, several), (1, 20, {}), (2, 30, several), (4, 40, several)):
        if ranks == 1:
            found = trained(model, data, options | {"steps": steps}, run=folder, resume=True)
            continue

        def work(group, steps=steps, how=how):
            now = options | how | {"steps": steps}
            return trained(model, data, now, group, run=folder, resume=steps > 10)

        found = on_ranks(ranks, work)[0]

    np.testing.assert_allclose(found[0], whole[0][30:], rtol=CLOSE)
    one, several = newest(tmp_path / "whole"), newest(folder)
    assert one.keys() == several.keys()
    for name, array in one.items():
        np.testing.assert_allclose(several[name], array, rtol=1e-6, atol=1e-9, err_msg=name)
    assert not [p for p in folder.iterdir() if p.name.startswith("tmp")]


LARGE = """net (int64[batch, 4] i) => (double[batch, 3] y) {
    r = Gather (table, i)
    s = ReduceSum <keepdims = 0> (r, axes)
    y = MatMul (s, w)
}"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("staleness", [0, 1])
def test_a_rank_has_its_rows_alone(staleness):
    rng = np.random.default_rng(0)
    arrays = {"table": rng.standard_normal((32768, 16)), "w": rng.standard_normal((16, 3))}
    model = build(LARGE, **arrays, axes=np.array([1]))
    data = {"i": rng.integers(0, 32768, (64, 4)), "labels": rng.integers(0, 3, 64)}
    options = {"optimizer": "adam", "batch": 8, "steps": 2, "sparse": True, "micro_batches": 2}
    whole = trained(model, data, options | {"micro_batches": 1})[3]
    how = options | {"shard_tables": ["table"], "staleness": staleness}

    found = [each[3] for each in on_ranks(2, lambda group: trained(model, data, how, group))]

    # A table and two means, half of each, and a block of what an update works on; with stale rows
    # the sums, once more for their scale, and the cache, of as many rows.
    half, work = arrays["table"].nbytes // 2, 2 << 20
    assert max(found) < (3 + 3 * staleness) * half + work
    assert max(found) < whole + staleness * half


@pytest.mark.sample(3)
@pytest.mark.parametrize(("change", "said"), [
    ({"sparse": False}, "--shard-tables takes --sparse"),
    ({"shard_tables": ["none"]}, "--shard-tables none: no such parameter (there are"),
    ({"shard_tables": ["w"]}, "w is whole on every rank: no Gather reads it"),
    ({"optimizer": "momentum"}, "momentum moves rows without a gradient"),
    ({"optimizer": "adamw"}, "weight decay changes every row"),
    ({"clip_norm": 1.0}, "--clip-norm needs the norm of whole gradients"),
    ({"staleness": 1, "plan": "mirror"}, "--staleness takes --plan keep"),
])  # fmt: skip
def test_what_cannot_be_is_said(change, said):
    model, data, options, several = drawn(1)
    options = {"optimizer": "sgd", "lr": 0.1, "batch": 8, "steps": 2, "sparse": True,
               "shard_tables": ["table*"]} | change  # fmt: skip
    del several
    with pytest.raises(UsageError) as error:
        on_ranks(2, lambda group: trained(model, data, options, group))
    assert said in str(error.value)


def test_staleness_is_of_tables():
    with pytest.raises(UsageError, match="staleness needs shard_tables"):
        gt.Trainer(gt.load(drawn(0)[0]), staleness=2, optimizer="sgd")


TIED = """net (int64[batch, 4] i) => (double[batch, 9] y) {
    r = Gather (table, i)
    s = ReduceSum <keepdims = 0> (r, axes)
    q = Gather (other, i)
    z = ReduceSum <keepdims = 0> (q, axes)
    h = Add (s, z)
    t = Transpose <perm = [1, 0]> (table)
    y = MatMul (h, t)
}"""


def test_a_disk_without_room_for_a_whole_table_is_one_line(tmp_path, monkeypatch):
    """Who writes to a mapping of holes on a full disk is killed."""
    made = row_tables.mapped(tmp_path, np.dtype(np.float32), (3, 5))
    made[:] = 1

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UsageError, match="no place for a table of 60 bytes: No space left"):
        row_tables.mapped(tmp_path, np.dtype(np.float32), (3, 5))
    assert not [*tmp_path.iterdir()]


def test_a_tied_table_is_whole_and_a_line_says_why():
    rng = np.random.default_rng(0)
    arrays = {"table": rng.standard_normal((9, 5)), "other": rng.standard_normal((9, 5))}
    model = build(TIED, **arrays, axes=np.array([1]))
    data = {"i": rng.integers(0, 9, (EXAMPLES, 4)), "labels": rng.integers(0, 9, EXAMPLES)}
    options = {"optimizer": "sgd", "lr": 0.1, "batch": 8, "steps": 9, "sparse": True}
    expected = trained(model, data, options)

    class Listening(Watcher):
        lines = ()

        def said(self, text):
            self.lines += (text,)

    def work(group):
        watcher = Listening()
        how = options | {"shard_tables": ["*"]}
        return trained(model, data, how, group, watcher=watcher), watcher.lines

    for found, lines in on_ranks(2, work):
        assert difference((*found[:2], {}), (*expected[:2], {})) < CLOSE
        (told,) = [line for line in lines if "whole on every rank" in line]
        assert told.startswith("warning: --shard-tables: table ")
        assert "Transpose" in told


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", sampled(range(5)))
def test_each_rank_has_the_arena_that_is_planned_on_paper(case):
    model, data, options, several = drawn(case, seed=5)
    options |= {"steps": 1, "ema": None, "plan": "keep"}
    several |= {"plan": "keep", "loss_scale": None, "staleness": case % 2}
    ranks, parts = 2, several["micro_batches"]
    wanted = GradOptions(
        loss="ce", optimizer=options["optimizer"], no_decay=options["no_decay"],
        clip_value=options["clip_value"], sparse=True,
    )  # fmt: skip
    recipe = Recipe(partial(training_graph, gt.load(model)), wanted)
    graphs = graphs_of(recipe, TrainOptions(optimizer=options["optimizer"]), in_two=True)

    def work(group):
        with gt.Trainer(gt.load(model), **options | several) as trainer:
            trainer.fit(data, group=group)
            return trainer.session.arena_bytes

    for rank, taken in enumerate(on_ranks(ranks, work)):
        dims = {"batch": 8 // ranks // parts}
        planned = layout(
            PaperTraining(graphs, recipe.updates, dims, Link(1e9, 1e-5), step_seconds, parts),
            OnPaper(rank, ranks), shard=several["shard"], tables=several["shard_tables"],
            staleness=case % 2,
        )  # fmt: skip
        assert planned.peak_bytes == taken
        assert planned.sending_seconds > 0


def test_a_report_shows_tables_by_rows(tmp_path, run):
    model, _, _, _ = drawn(0)
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    given = ["report", str(path), "--loss", "ce", "--ranks", "4", "--batch", "8", "--optimizer",
             "adagrad", "--shard", "none", "--format", "json", "--sparse"]  # fmt: skip
    whole, cut, stale = (
        json.loads(run(*given, *more).out)["layouts"][0]
        for more in ([], ["--shard-tables", "table*"],
                     ["--shard-tables", "table*", "--staleness", "2"])
    )  # fmt: skip

    assert cut["parameters_bytes"] < whole["parameters_bytes"]
    assert cut["state_bytes"] < whole["state_bytes"]
    assert stale["rest_bytes"] > cut["rest_bytes"]
    refused = run(*given, "--staleness", "2")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--staleness" in refused.err

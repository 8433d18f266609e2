"""Ranks that hold a part of the optimizer's state come to what one process comes to."""

import numpy as np
import pytest
from conftest import build, sampled
from forked_ranks import on_ranks, supported
from rank_cases import DATA, difference, drawn, trained

import gradtool as gt
from gradtool.graph.optimizers import UPDATING
from gradtool.io import safetensors

pytestmark = supported
CLOSE = 1e-9  # relative, in float64: sums in another order
SHARD = {"shard": "optimizer"}
SUMS = {"shard": "gradients"}
WAYS = ("optimizer", "gradients")


def together(ranks, case, options, **how):
    """What each rank of a drawn case comes to."""

    def work(group):
        model, drawn_options, _ = drawn(ranks, case)
        return trained(model, drawn_options | options, group, **how)

    return on_ranks(ranks, work)


def newest(folder):
    """The tensors of the newest checkpoint."""
    return safetensors.load(max(folder.glob("step-*.safetensors"))).arrays


@pytest.mark.sample(6, 2.5)
@pytest.mark.parametrize("shard", WAYS)
@pytest.mark.parametrize("ranks", sampled([2, 4]))
@pytest.mark.parametrize("optimizer", sampled(UPDATING))
def test_every_optimizer_comes_to_what_one_process_does(ranks, optimizer, shard, tmp_path):
    case = list(UPDATING).index(optimizer)
    rng = np.random.default_rng([case, WAYS.index(shard)])
    limits = {"clip_norm": 0.1, "clip_value": 0.02, "no_decay": ["b*"]}
    options = {"optimizer": optimizer, "steps": 8, "ema": 0.9} | {
        name: limit for name, limit in limits.items()
        if rng.random() < 0.5 and (name != "no_decay" or optimizer in ("adamw", "lamb", "muon"))
    }  # fmt: skip
    model, _, alone = drawn(ranks, case)
    expected = trained(model, alone | options, run=tmp_path / "one")
    found = together(ranks, case, options | {"shard": shard}, run=tmp_path / "run")

    for each in found:
        assert difference((*each[:2], {}), (*expected[:2], {})) < CLOSE
    one, several = newest(tmp_path / "one"), newest(tmp_path / "run")
    assert one.keys() == several.keys()
    for name, array in one.items():
        assert several[name].shape == array.shape
        np.testing.assert_allclose(several[name], array, rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.exhaustive
def test_a_checkpoint_is_gone_on_with_on_other_ranks_sharded_or_not(tmp_path):
    every = {"optimizer": "adamw", "micro_batches": 1, "batch": 8, "checkpoint_every": 5}
    model, _, alone = drawn(4, 0)
    whole = trained(model, alone | every | {"steps": 40}, run=tmp_path / "whole")
    folder = tmp_path / "run"
    turns = ((4, 10, SHARD), (2, 20, {}), (1, 25, SHARD), (2, 30, SUMS), (4, 40, SHARD))
    for ranks, steps, shard in turns:

        def work(group, steps=steps, shard=shard):
            model, options, _ = drawn(4, 0)
            options |= every | shard | {"steps": steps}
            return trained(model, options, group, run=folder, resume=steps > 10)

        found = on_ranks(ranks, work)[0]

    np.testing.assert_allclose(found[0], whole[0][30:], rtol=CLOSE)
    one, several = newest(tmp_path / "whole"), newest(folder)
    assert one.keys() == several.keys()
    for name, array in one.items():
        np.testing.assert_allclose(several[name], array, rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.sample(2)
@pytest.mark.parametrize("shard", WAYS)
def test_what_is_written_in_the_end_has_the_parameters_and_the_means_of_all(shard, tmp_path):
    how = {"optimizer": "adamw", "ema": 0.9, "steps": 6}
    model, _, alone = drawn(4, 0)
    with gt.Trainer(model, **alone | how) as trainer:
        trainer.fit(DATA)
        trainer.save(tmp_path / "one.onnx")
        trainer.save(tmp_path / "one.ema.onnx", averages=True)

    def work(group):
        model, options, _ = drawn(4, 0)
        with gt.Trainer(model, **options | how | {"shard": shard}) as trainer:
            trainer.fit(DATA, group=group)
            if group.rank == 0:
                trainer.save(tmp_path / "four.onnx")
                trainer.save(tmp_path / "four.ema.onnx", averages=True)

    on_ranks(4, work)
    for end in (".onnx", ".ema.onnx"):
        one, four = (
            gt.load(tmp_path / f"{stem}{end}").graph.initializers for stem in ("one", "four")
        )
        for name, value in one.items():
            np.testing.assert_allclose(
                four[name].const_value.numpy(), value.const_value.numpy(), rtol=1e-7, atol=1e-10
            )


def held(model, options, *group):
    """Elements of the optimizer's state that a rank holds."""
    with gt.Trainer(model, **options) as trainer:
        trainer.fit(DATA, **dict(zip(["group"], group, strict=False)))
        values = trainer.session.values()
        return sum(a.size for n, a in values.items() if "exp_avg" in n or "momentum" in n)


@pytest.mark.sample(4)
@pytest.mark.parametrize("shard", WAYS)
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_rank_holds_its_share_of_the_state(optimizer, shard):
    how = {"optimizer": optimizer, "steps": 1, "ema": None}

    def work(group):
        model, options, _ = drawn(4, 0)
        return held(model, options | how | {"shard": shard}, group)

    sizes = on_ranks(4, work)
    model, _, alone = drawn(4, 0)
    whole = held(model, alone | how)

    assert sum(sizes) >= whole
    assert max(sizes) < whole


WIDE = """net (float[batch, 64] x) => (float[batch, 8] y) {
    h = MatMul (x, w1)
    s = Add (h, b1)
    r = Tanh (s)
    y = MatMul (r, w2)
}"""


@pytest.mark.sample(4, 2)
@pytest.mark.exhaustive
@pytest.mark.parametrize("accumulate", ["chain", "sum"])
@pytest.mark.parametrize("plan", sampled(["keep", "sqrt"]))
@pytest.mark.parametrize("parts", sampled([2, 1]))
def test_a_rank_holds_its_share_of_the_sums(plan, parts, accumulate):
    rng = np.random.default_rng(0)
    arrays = {"w1": (64, 256), "b1": (256,), "w2": (256, 8)}
    model = build(WIDE, **{n: rng.normal(size=s).astype(np.float32) for n, s in arrays.items()})
    data = {"x": rng.normal(size=(64, 64)).astype(np.float32), "labels": rng.integers(0, 8, 64)}
    how = {"optimizer": "adamw", "batch": 16, "steps": 4, "micro_batches": parts, "plan": plan,
           "accumulate": accumulate, "clip_norm": 0.5, "loss_scale": "dynamic"}  # fmt: skip

    def held(shard, *group):
        with gt.Trainer(gt.load(model), **how, shard=shard) as trainer:
            history = trainer.fit(data, **dict(zip(["group"], group, strict=False)))
            sums = [a.size for n, a in trainer.session.values().items() if "grad_in" in n]
            return history.losses, sum(sums), trainer.session.arena_bytes

    losses, whole, _ = held("none")
    for shard, share in (("optimizer", 1), ("gradients", 4)):
        found = on_ranks(4, lambda group, shard=shard: held(shard, group))
        for ours, held_there, taken in found:
            np.testing.assert_allclose(ours, losses, rtol=1e-5)
            assert held_there == whole // share
            assert taken <= found[0][2]


def test_an_infinity_of_one_rank_is_seen_by_all():
    """Its sums may lie on another one, or on none of two."""
    data = {name: array.copy() for name, array in DATA.items()}
    data["x"][5] = np.inf

    def work(group):
        model, options, _ = drawn(4, 0)
        how = {"steps": 3, "batch": 8, "loss_scale": "dynamic", "shuffle": False, "ema": None}
        with gt.Trainer(model, **options | how | SUMS) as trainer:
            return trainer.fit(data, group=group).skipped

    assert len(set(on_ranks(4, work))) == 1

"""Replicas of stages that hold a part of the optimizer's state come to what one process does."""

import numpy as np
import pytest
import stage_cases
from conftest import sampled
from forked_ranks import on_ranks, supported
from rank_cases import difference, trained

from gradtool.graph.optimizers import UPDATING
from gradtool.io import safetensors

pytestmark = supported
CLOSE = 1e-9  # relative, in float64: sums in another order
RANKS, STAGES = 4, 2
FEW = ("sgd", "adamw", "muon")  # without state, cut by elements, of one owner
SHARD = {"shard": "optimizer"}


def fitted(case, options, ranks=RANKS, stages=STAGES, seed=0, **how):
    """What each rank of a drawn case comes to."""

    def work(group):
        model, drawn, _ = stage_cases.drawn(RANKS, STAGES, case, seed)
        return trained(model, drawn | {"stages": stages} | options, group, **how)

    return on_ranks(ranks, work)


def newest(folder):
    """The tensors of the newest checkpoint."""
    return safetensors.load(max(folder.glob("step-*.safetensors"))).arrays


def require_close(folder, expected):
    """Hold all that was trained, and state, against that of another training."""
    found, wanted = newest(folder), newest(expected)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimizer", [
    *sampled(FEW), *(pytest.param(n, marks=pytest.mark.slow) for n in UPDATING if n not in FEW)
])  # fmt: skip
def test_every_optimizer_comes_to_what_it_does_without_parts(optimizer, tmp_path):
    case = list(UPDATING).index(optimizer)
    rng = np.random.default_rng(case)
    limits = {"clip_norm": 0.1, "clip_value": 0.02, "ema": 0.9}
    options = {"optimizer": optimizer, "steps": 4, "plan": "keep"}
    for name, limit in limits.items():
        options[name] = limit if rng.random() < 0.5 else None
    whole = fitted(case, options, run=tmp_path / "whole")
    for each in fitted(case, options | SHARD, run=tmp_path / "parts"):
        assert difference((*each[:2], {}), (*whole[0][:2], {})) < CLOSE
    require_close(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", sampled(range(2)))
def test_whatever_is_drawn_comes_to_what_one_process_does(case, tmp_path):
    model, _, alone = stage_cases.drawn(RANKS, STAGES, case)
    expected = trained(model, alone, run=tmp_path / "one")
    for each in fitted(case, SHARD, run=tmp_path / "run"):
        assert difference((*each[:2], {}), (*expected[:2], {})) < CLOSE
    require_close(tmp_path / "run", tmp_path / "one")


@pytest.mark.exhaustive
def test_sums_in_the_order_of_ranks_have_the_bits_of_stages_without_parts(tmp_path):
    how = {"optimizer": "adamw", "clip_norm": 0.1, "steps": 10}
    for name, shard in (("whole", {}), ("parts", SHARD)):
        fitted(1, how | shard, run=tmp_path / name)
    whole, parts = newest(tmp_path / "whole"), newest(tmp_path / "parts")

    assert whole.keys() == parts.keys()
    for name, array in whole.items():
        assert parts[name].tobytes() == array.tobytes(), name


@pytest.mark.exhaustive
def test_a_checkpoint_is_gone_on_with_in_other_stages_sharded_or_not(tmp_path):
    every = {
        "optimizer": "adamw", "micro_batches": 2, "checkpoint_every": 10, "ema": 0.9,
        "clip_norm": None, "sync_batchnorm": False,
    }  # fmt: skip
    model, _, alone = stage_cases.drawn(RANKS, STAGES, 2, 1)
    trained(model, alone | every | {"steps": 50}, run=tmp_path / "whole")
    ways = [(4, 2, SHARD), (1, 1, {}), (4, 2, SHARD), (4, 1, SHARD), (2, 2, {})]
    for number, (ranks, stages, shard) in enumerate(ways, 1):
        options = every | shard | {"steps": 10 * number}
        fitted(2, options, ranks, stages, 1, run=tmp_path / "run", resume=number > 1)

    require_close(tmp_path / "run", tmp_path / "whole")


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_replicas_have_all_state_of_a_stage_together_and_none_twice(optimizer):
    def held(found):
        names = {name for each in found for name in each[2]}
        return {
            name: sum(each[2][name].size for each in found if name in each[2])
            for name in names if "exp_avg" in name or "momentum" in name
        }  # fmt: skip

    how = {"optimizer": optimizer, "steps": 1, "ema": None}
    whole, parts = (fitted(1, how | shard) for shard in ({}, SHARD))

    assert held(parts) == {name: size // 2 for name, size in held(whole).items()}

"""Ranks that hold a part of the optimizer's state come to what one process comes to."""

import numpy as np
import pytest
from forked_ranks import on_ranks, supported
from rank_cases import difference, drawn, trained

from gradtool.graph.optimizers import UPDATING
from gradtool.io import safetensors

pytestmark = supported
CLOSE = 1e-9  # relative, in float64: sums in another order
SHARD = {"shard": "optimizer"}


def together(ranks, case, options, **how):
    """What each rank of a drawn case comes to."""

    def work(group):
        model, drawn_options, _ = drawn(ranks, case)
        return trained(model, drawn_options | options, group, **how)

    return on_ranks(ranks, work)


def newest(folder):
    """The tensors of the newest checkpoint."""
    return safetensors.load(max(folder.glob("step-*.safetensors"))).arrays


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("optimizer", UPDATING)
def test_every_optimizer_comes_to_what_one_process_does(ranks, optimizer, tmp_path):
    case = list(UPDATING).index(optimizer)
    rng = np.random.default_rng(case)
    limits = {"clip_norm": 0.1, "clip_value": 0.02, "no_decay": ["b*"]}
    options = {"optimizer": optimizer, "steps": 8, "ema": 0.9} | {
        name: limit for name, limit in limits.items()
        if rng.random() < 0.5 and (name != "no_decay" or optimizer in ("adamw", "lamb", "muon"))
    }  # fmt: skip
    model, _, alone = drawn(ranks, case)
    expected = trained(model, alone | options, run=tmp_path / "one")
    found = together(ranks, case, options | SHARD, run=tmp_path / "run")

    for each in found:
        assert difference((*each[:2], {}), (*expected[:2], {})) < CLOSE
    one, several = newest(tmp_path / "one"), newest(tmp_path / "run")
    assert one.keys() == several.keys()
    for name, array in one.items():
        assert several[name].shape == array.shape
        np.testing.assert_allclose(several[name], array, rtol=1e-6, atol=1e-9, err_msg=name)

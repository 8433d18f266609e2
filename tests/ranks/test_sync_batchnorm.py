"""With --sync-batchnorm several ranks come to what one process does, statistics of batches too."""

import pytest
from conftest import sampled, swept
from forked_ranks import on_ranks, supported
from rank_cases import difference
from rank_norms import network, trained

import gradtool as gt
from gradtool.errors import UsageError

pytestmark = supported
CLOSE = 1e-9  # relative, in float64: sums in another order


@pytest.mark.parametrize("shard", sampled(["optimizer", "none", "gradients"]))
@pytest.mark.parametrize("ranks", sampled([2, 4]))
@pytest.mark.parametrize("seed", swept(6, 1))
def test_statistics_are_those_of_one_process(seed, ranks, shard):
    expected = trained(seed)
    found = on_ranks(ranks, lambda group: trained(seed, group, sync_batchnorm=True, shard=shard))

    for each in found:
        assert difference(each, expected) < CLOSE
        for name, array in each[2].items():
            assert array.tobytes() == found[0][2][name].tobytes(), name


@pytest.mark.exhaustive
def test_without_it_they_are_those_of_a_rank():
    apart = on_ranks(2, lambda group: trained(1, group))

    assert difference(apart[0], trained(1)) > 1e-3


def test_a_model_without_such_a_norm_is_refused():
    def work(group):
        model, data, options = network(0)
        with gt.Trainer(model, **options | {"train_mode": False}, sync_batchnorm=True) as trainer:
            trainer.fit(data, group=group)

    with pytest.raises(UsageError, match="no BatchNormalization takes the statistics of a batch"):
        on_ranks(2, work)

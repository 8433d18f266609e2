"""Low-rank adapters in a training: merged, written for themselves, of the last step or the best."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from trainings import examples, proto, weights

import gradtool as gt
from gradtool.errors import UsageError

DATA, TEST = examples(50), examples(21, 5)
OPTIONS = {"lora": 2, "batch": 8, "steps": 9, "lr": 1.0, "optimizer": "sgd"}
NEAR = {"rtol": 1e-5, "atol": 1e-6}


def in_ort(path, adapter=None):
    ort = pytest.importorskip("onnxruntime")
    how = ort.RunOptions()
    if adapter is not None:
        loaded = ort.LoraAdapter()
        loaded.Load(str(adapter))
        how.add_active_adapter(loaded)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": TEST["x"]}, how)[0]


@pytest.fixture
def net(tmp_path):
    onnx.save(proto(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.mark.extra
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("best", [False, True])
def test_merged_adapted_and_trained_outputs_agree(net, tmp_path, parts, best):
    """Labels are wrong in the end, so that the best weights are not the last ones."""
    given = examples(72)
    given["labels"][40:] = (given["labels"][40:] + 1) % 3
    options = OPTIONS | {"every": 1, "shuffle": False, "micro_batches": parts, "ema": 0.5}
    with gt.Trainer(net, **options) as trainer:
        history = trainer.fit(given, evaluate=TEST, run=tmp_path / "run")
        trainer.save(tmp_path / "merged.onnx", best=best)
        (model, _), (adapter, _) = trainer.save_adapter(tmp_path / "net.lora.onnx", best=best)
        trained = trainer.session.evaluate(TEST).outputs["y"]

    assert 1 < history.best.step < history.step
    outputs = in_ort(tmp_path / "merged.onnx")
    np.testing.assert_allclose(in_ort(model, adapter), outputs, **NEAR)
    np.testing.assert_array_equal(in_ort(model), in_ort(net))
    assert np.allclose(outputs, trained, **NEAR) is not best


def test_the_weights_have_no_state_and_stay():
    with gt.Trainer(gt.load(proto()), **OPTIONS | {"optimizer": "adamw"}) as trainer:
        trainer.fit(DATA)
        values = trainer.session.values()

    first = weights()
    assert not {*first} & {*values}
    assert {name.partition(".lora")[0] for name in values if ".lora" in name} == {"w1", "w2"}


def test_the_seed_draws_the_adapters():
    def drawn(seed):
        with gt.Trainer(gt.load(proto()), **OPTIONS | {"seed": seed, "lr": 0.0}) as trainer:
            trainer.fit(DATA)
            return {name: value.tobytes() for name, value in trainer.session.values().items()}

    assert drawn(3) == drawn(3) != drawn(4)


def test_without_adapters_there_are_none_to_write(tmp_path):
    with gt.Trainer(gt.load(proto()), batch=8, steps=1) as trainer:
        trainer.fit(DATA)
        with pytest.raises(UsageError, match="no adapters to write"):
            trainer.save_adapter(tmp_path / "a.onnx")

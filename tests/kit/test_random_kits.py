"""Random models, optimizers and plans: a kit in stock onnxruntime trains as a session does.

`pytest tests/kit` tries 24 of them, always the same; `-m slow` tries 300 new ones.
"""

from __future__ import annotations

from pathlib import Path

import jsonschema
import numpy as np
import onnx_ir as ir
import pytest
from conftest import trials
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kits import OPTIMIZERS, PLANS, Stock, nets

import gradtool as gt
from gradtool.commands.schema import schema_named
from gradtool.graph.predicates import is_used
from gradtool.io import safetensors
from gradtool.kit.merge import merge_kit
from gradtool.kit.write import write_kit

ort = pytest.importorskip("onnxruntime")

STEPS, TOLERANCE = 4, 2e-5
EVERYTHING = {
    "deadline": None, "print_blob": True, "database": None, "phases": [Phase.generate],
    "suppress_health_check": list(HealthCheck),
}  # fmt: skip
choices = {
    "drawn": nets(), "optimizer": st.sampled_from(OPTIMIZERS), "plan": st.sampled_from(PLANS),
    "rank": st.sampled_from((None, None, 1, 3)),
}  # fmt: skip


def unread(path: Path) -> list[str]:
    """The initializers of a model that no node reads: runtimes warn of them."""
    graph = ir.load(path).graph
    return [name for name, value in graph.initializers.items() if not is_used(value)]


def check(drawn, optimizer: str, plan: str, rank: int | None, folder: Path) -> None:
    content, batch, _ = drawn
    (folder / "net.onnx").write_bytes(content)
    training = gt.grad(
        gt.load(folder / "net.onnx"), loss="ce", optimizer=optimizer, train_mode=True, lora=rank
    )
    dims = {"batch": len(batch["labels"])}
    planned = training if plan == "keep" else gt.recompute(training, plan, dims=dims)
    if plan == "mirror":
        planned = gt.mirror(training, dims=dims)
    kit = write_kit(planned, folder / "kit")
    schema = schema_named("kit")
    jsonschema.Draft202012Validator(schema).validate(kit.manifest)
    for name in ("step.onnx", "eval.onnx"):
        assert unread(folder / "kit" / name) == []

    stock = Stock(folder / "kit")
    batch[kit.manifest["optimizer"]["learning_rate"]] = np.array(0.01, np.float32)
    with gt.Session(training) as session:
        for _ in range(STEPS):
            ours, theirs = session.step(batch), stock.step(batch)
            np.testing.assert_allclose(theirs[training.loss], ours.loss, TOLERANCE, 1e-6)
        values = session.values()
        assert values.keys() == stock.state.keys() - {"dropout_step"}  # a session counts itself
        for name, array in values.items():
            assert stock.state[name].dtype == array.dtype
            np.testing.assert_allclose(
                stock.state[name], array, rtol=1e-3, atol=TOLERANCE, err_msg=name
            )
        labelled = {name: batch[name] for name in ("x", "labels")}
        evaluated = stock.evaluate(labelled)
        np.testing.assert_allclose(
            evaluated["y"], session.evaluate(labelled).outputs["y"], rtol=1e-3, atol=TOLERANCE
        )

    safetensors.save(folder / "trained.safetensors", stock.state)
    ((path, _),) = merge_kit(
        folder / "kit", folder / "trained.safetensors", folder / "trained.onnx"
    )
    merged = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (y,) = merged.run(["y"], {"x": batch["x"]})
    np.testing.assert_allclose(y, evaluated["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
@settings(max_examples=trials(15), derandomize=True, **EVERYTHING)
@given(**choices)
def test_a_kit_trains_as_a_session_does(tmp_path_factory, drawn, optimizer, plan, rank):
    check(drawn, optimizer, plan, rank, tmp_path_factory.mktemp("kit"))


@pytest.mark.slow
@settings(max_examples=300, **EVERYTHING)
@given(**choices)
def test_many_kits_train_as_a_session_does(tmp_path_factory, drawn, optimizer, plan, rank):
    check(drawn, optimizer, plan, rank, tmp_path_factory.mktemp("kit"))

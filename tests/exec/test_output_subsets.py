"""Every kernel writes any subset of its outputs, with the same bits.

A step that is recomputed writes only what somebody reads again: the rest is None in `out`.
"""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import cases
import numpy as np
import onnx_ir as ir
import pytest
from cases import Case, Floats, fixed, integers
from checkers import Feeds, _with_programs, build, differentiated, evaluate
from clones import recompute
from conftest import sampled
from graphs import floats, parse

import gradtool as gt
from gradtool.graph.families import FAMILIES
from gradtool.graph.specs import Spec
from gradtool.ops import kernels as registry
from gradtool.ops.kernels import Kernel
from gradtool.ops.shared.call import spec_of

for family in FAMILIES:
    if find_spec(f"operators.{family}"):
        import_module(f"operators.{family}")

KERNELS = (
    "Attention", "BatchNormalization", "Dropout", "DynamicQuantizeLinear", "GRU", "If", "LSTM",
    "LayerNormalization", "Loop", "MaxPool", "RNN", "Scan", "SoftmaxCrossEntropyLoss", "Split",
    "StringSplit", "TopK", "Unique", "ai.gradtool::AdagradUpdate", "ai.gradtool::AdamUpdate",
    "ai.gradtool::BatchNormalizationGrad", "ai.gradtool::BatchNormalizationTraining",
    "ai.gradtool::FusedAttention", "ai.gradtool::FusedAttentionGrad", "ai.gradtool::GRUGrad",
    "ai.gradtool::GroupNormalizationGrad", "ai.gradtool::LSTMGrad",
    "ai.gradtool::LambDirection", "ai.gradtool::LayerNormalizationGrad",
    "ai.gradtool::LinearCrossEntropy", "ai.gradtool::LinearCrossEntropyGrad",
    "ai.gradtool::LionUpdate",
    "ai.gradtool::MaxPoolTraining", "ai.gradtool::MomentumUpdate", "ai.gradtool::MuonDirection",
    "ai.gradtool::RMSNormalizationGrad", "ai.gradtool::RNNGrad", "ai.gradtool::RmspropUpdate",
    "ai.gradtool::RotaryTableGrad", "ai.gradtool::RowSlots", "ai.gradtool::ScaledAttention",
    "ai.gradtool::SparseAdagradUpdate", "ai.gradtool::SparseAdamUpdate",
    "ai.gradtool::VarianceDirection", "ai.onnx.ml::LinearClassifier",
    "ai.onnx.preview.training::Adagrad",
    "ai.onnx.preview.training::Adam", "ai.onnx.preview.training::Momentum",
)  # fmt: skip
CONTROL = (
    """g (float[3, 2] x) => (a, b, c) <bool yes = {1}> {
        a, b, c = If (yes) <then_branch = one () => (float[3, 2] p, float[3, 2] q, float[2] r)
            { p = Exp (x) q = Mul (p, x) axis = Constant <value = int64[1] {0}> ()
              r = ReduceSum <keepdims = 0> (q, axis) },
            else_branch = two () => (float[3, 2] p, float[3, 2] q, float[2] r)
            { p = Neg (x) q = Add (p, x) axis = Constant <value = int64[1] {0}> ()
              r = ReduceMax <keepdims = 0> (q, axis) }>
    }""",
    """g (float[3] x) => (a, b, c) <int64 turns = {4}, bool yes = {1}> {
        a, b, c = Loop (turns, yes, x, x) <body = turn
            (int64 i, bool on, float[3] s, float[3] t)
            => (bool go, float[3] u, float[3] v, float[3] w)
            { go = Identity (on) u = Sin (s) v = Add (t, u) w = Mul (u, v) }>
    }""",
    """g (float[2] x, float[5, 2] y) => (a, b, c) {
        a, b, c = Scan <num_scan_inputs = 1, body = turn (float[2] s, float[2] t)
            => (float[2] u, float[2] v, float[2] w)
            { u = Add (s, t) v = Mul (u, t) w = Tanh (u) }> (x, y)
    }""",
)
QUERIES = (Floats((1, 2, 700, 16)),) * 3
CAPPED = {"is_causal": 1, "softcap": 3.0, "qk_matmul_output_mode": 1}
CHANNELS = (Floats((16,)), Floats((16,)), fixed(16), fixed(16, low=0.5))
LABELS = integers(np.arange(3000) % 50)
LARGE = (
    Case("Attention", QUERIES, {"is_causal": 1}, 4, 24),
    Case("Attention", QUERIES, CAPPED, 4, 24),
    Case("Attention", QUERIES, {"is_causal": 1, "qk_matmul_output_mode": 2}, 4, 24),
    Case("Attention", QUERIES, {"is_causal": 1, "qk_matmul_output_mode": 3}, 4, 24),
    Case("Attention", (*QUERIES, Floats((700, 700))), {}, 1, 24),
    Case("BatchNormalization", (Floats((8, 16, 40, 40)), *CHANNELS), {"training_mode": 1}, 3),
    Case("Dropout", (Floats((40, 5000)), None, np.array(True)), {"seed": 3}, 2),
    Case("GroupNormalization", (Floats((4, 8, 90, 90)), Floats((8,)), Floats((8,))),
         {"num_groups": 2}, 1, 21),
    Case("LSTM", (Floats((70, 8, 6)), Floats((1, 64, 6)), Floats((1, 64, 16)), Floats((1, 128))),
         {"hidden_size": 16}, 3),
    Case("GRU", (Floats((70, 8, 6)), Floats((1, 48, 6)), Floats((1, 48, 16)), Floats((1, 96))),
         {"hidden_size": 16}, 2),
    Case("RNN", (Floats((70, 8, 6)), Floats((1, 16, 6)), Floats((1, 16, 16)), Floats((1, 32))),
         {"hidden_size": 16}, 2),
    Case("LayerNormalization", (Floats((300, 700)), Floats((700,)), Floats((700,))), {}, 3),
    Case("LayerNormalization", (Floats((3, 150000)), Floats((150000,)), Floats((150000,))), {}, 3),
    Case("RMSNormalization", (Floats((300, 700)), Floats((700,))), {}, 1, 23),
    Case("MaxPool", (Floats((4, 8, 70, 70)),), {"kernel_shape": [3, 3]}, 2),
    Case("SoftmaxCrossEntropyLoss", (Floats((3000, 50)), LABELS), {"reduction": "sum"}, 2),
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A kernel with its arguments; `specs` are those of all outputs, None where one is absent."""

    kernel: Kernel
    inputs: list[Any]
    specs: list[Spec | None]
    attributes: dict[str, Any]
    case: str

    def subsets(self) -> Iterator[list[Spec | None]]:
        """Some of the outputs: all choices of up to three, else one, and all but one."""
        slots = [i for i, spec in enumerate(self.specs) if spec is not None]
        few = len(slots) <= 3
        sizes = range(1, len(slots)) if few else (1, len(slots) - 1)
        for size in sizes:
            for chosen in itertools.combinations(slots, size):
                yield [s if i in chosen else None for i, s in enumerate(self.specs)]

    def outputs(self, wanted: list[Spec | None]) -> list[Any]:
        """What the kernel makes in dirty memory; it takes as much as `check_memory` allows."""
        given = [np.array(a) if isinstance(a, np.ndarray) else a for a in self.inputs]
        if self.kernel.allocating:
            made = self.kernel.function(np, *given, **self.attributes)
            return [None if s is None else m for s, m in zip(wanted, made, strict=False)]
        specs = [
            a if a is None or slot in self.kernel.host else spec_of(a)
            for slot, a in enumerate(given)
        ]
        out = [None if s is None else _dirty(s) for s in wanted]
        work = [_dirty(s) for s in self.kernel.workspace(specs, wanted, self.attributes)]
        tracemalloc.start()
        try:
            self.kernel.function(np, *given, **self.kernel.buffers(out, work), **self.attributes)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak <= 114688, f"{self.kernel.name} takes {peak} bytes"
        return out

    def check(self) -> None:
        """Compare the bits of every subset with those of the whole."""
        whole = self.outputs(self.specs)
        for wanted in self.subsets():
            for slot, made in enumerate(self.outputs(wanted)):
                if made is not None:
                    places = [i for i, s in enumerate(wanted) if s is not None]
                    where = f"output {slot} of {self.kernel.name} asked for {places}: {self.case}"
                    assert _bits(made) == _bits(whole[slot]), where


def _dirty(spec: Spec) -> np.ndarray:
    """An array full of NaN, -1 or truth."""
    array = np.empty(spec.shape, spec.dtype)
    array.fill(True if spec.dtype == bool else np.nan if spec.dtype.kind == "f" else 255)
    return array


def _bits(array: Any) -> Any:
    array = np.asarray(array)
    return array.tolist() if array.dtype == object else array.tobytes()


def _calls(model: ir.Model, feeds: Feeds, where: str) -> Iterator[Call]:
    """The nodes of several outputs of a model, and what their kernels are given."""
    known = evaluate(model, feeds)
    for node in model.graph:
        if sum(bool(v.name) for v in node.outputs) < 2:
            continue
        version = model.graph.opset_imports.get(node.domain, 1)
        found = registry.find(node.domain, node.op_type, version)
        attributes, captured = _with_programs(model, node)
        inputs = [None if v is None else known[v.name] for v in (*node.inputs, *captured)]
        specs = [spec_of(known[v.name]) if v.name else None for v in node.outputs]
        yield Call(found, inputs, specs, attributes, where)


def _training(case: Case, dtype: Any) -> tuple[ir.Model, Feeds]:
    return differentiated(case, dtype)[:2] if case.gradient else build(case, dtype)


@pytest.fixture(scope="module")
def calls() -> dict[str, list[Call]]:
    """By kernel, its calls in all cases of the tables and in their gradients."""
    found: dict[str, list[Call]] = {}
    with np.errstate(all="ignore"):
        for case in cases.CASES:
            for call in _calls(*_training(case, np.float32), case.id):
                found.setdefault(call.kernel.name, []).append(call)
        for text in CONTROL:
            model = parse(text)
            rng = np.random.default_rng(5)
            feeds = {
                v.name: rng.uniform(-1, 1, v.shape.numpy()).astype(np.float32)
                for v in model.graph.inputs
            }
            for call in _calls(model, feeds, text):
                found.setdefault(call.kernel.name, []).append(call)
    return found


@pytest.mark.exhaustive
def test_all_kernels_of_several_outputs_are_here(calls):
    assert sorted(calls) == sorted(KERNELS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sampled(KERNELS))
def test_the_bits_of_an_output_do_not_depend_on_the_others(calls, name):
    with np.errstate(all="ignore"):
        for call in calls[name]:
            call.check()


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", sampled([np.float32, np.float16]))
@pytest.mark.parametrize("case", LARGE, ids=lambda c: c.id)
def test_arrays_of_many_blocks_are_no_exception(case, dtype):
    with np.errstate(all="ignore"):
        found = list(_calls(*_training(case, dtype), case.id))
        for call in found:
            call.check()

    assert found


def test_a_clone_that_gives_only_statistics_leaves_the_gradients_as_they_are():
    model = parse(
        """g (float[4, 3, 5, 5] x, float[3] s, float[3] b, float[3] m, float[3] v)
        => (y, new_m, new_v) {
            h = Tanh (x)
            n, new_m, new_v = BatchNormalization <training_mode = 1> (h, s, b, m, v)
            y = Sigmoid (n)
        }""",
        "s b",
    )
    kept = gt.grad(model, loss="sum:y").model
    call = next(n for n in kept.graph if n.op_type == "BatchNormalizationTraining")
    again = recompute(kept, {v.name for v in call.outputs[3:]})
    feeds = {"x": floats(4, 3, 5, 5), "m": floats(3), "v": np.ones(3, np.float32)}
    expected, actual = (gt.run(m, feeds).gradients for m in (kept, again))

    assert {name: g.tobytes() for name, g in actual.items()} == {
        name: g.tobytes() for name, g in expected.items()
    }
    assert sorted(actual) == ["b", "s"]

"""A kernel touches its workspace to the last byte that it declares, padding of buffers aside.

What lies above the last byte touched would be planned and never used: where a workspace is on top
of the arena, the plan would promise more than a step takes.  A kernel may leave gaps below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import cases
import numpy as np
import onnx_ir as ir
import pytest
from cases import Case, fixed, floats, integers, positive
from checkers import Feeds, _with_programs, build, differentiated, evaluate
from conftest import sampled
from graphs import parse

from gradtool.graph.families import FAMILIES
from gradtool.graph.specs import Spec
from gradtool.ops import kernels as registry
from gradtool.ops.kernels import Kernel
from gradtool.ops.shared.call import spec_of

for family in FAMILIES:
    if find_spec(f"operators.{family}"):
        import_module(f"operators.{family}")

PATTERNS = (0xA5, 0x5A)
ALIGNMENT = 64
CONTROL = (
    """g (float[500] x, float[3] y) => (a, b, c) <int64 turns = {3}, bool yes = {1}> {
        a, b, c = Loop (turns, yes, x, x) <body = turn
            (int64 i, bool on, float[500] s, float[500] t)
            => (bool go, float[500] u, float[500] v, float[500] w)
            { go = Identity (on) u = Identity (t) v = Sin (s) w = Mul (u, v) }>
    }""",
    """g (float[40] x, float[5, 40] y) => (a, b) {
        a, b = Scan <num_scan_inputs = 1, body = turn (float[40] s, float[40] t)
            => (float[40] u, float[40] v) { u = Add (s, t) v = Mul (u, t) }> (x, y)
    }""",
    """g (float[40] x, float[3] y) => (a) <bool yes = {1}> {
        a = If (yes) <then_branch = one () => (float[40] p) { q = Exp (x) p = Mul (q, x) },
            else_branch = two () => (float[40] p) { q = Neg (x) p = Add (q, x) }>
    }""",
)
QUERIES, FEW = floats(2, 4, 300, 8), floats(2, 2, 500, 8)
PAST = floats(2, 2, 30, 8)
SEEN = (np.arange(1000) % 5 > 0).reshape(2, 1, 1, 500)
IMAGE, CHANNELS = floats(4, 8, 90, 90), (floats(8), floats(8))
RUNNING = (fixed(8), fixed(8, low=0.5))
TIMES, WEIGHTS = floats(70, 8, 6), (floats(1, 48, 6), floats(1, 48, 16), floats(1, 96))
FOUR = (floats(1, 64, 6), floats(1, 64, 16), floats(1, 128))
ROWS = np.random.default_rng(0).integers(0, 90, (3, 90, 90))
SCALES = np.array([1, 1, 1.7, 0.6], np.float32)
LARGE = (
    Case("Attention", (QUERIES, FEW, FEW), {"is_causal": 1}, 1, 24),
    Case("Attention", (QUERIES, FEW, FEW), {"is_causal": 1, "softcap": 3.0}, 4, 24),
    Case("Attention", (QUERIES, FEW, FEW, SEEN), {}, 1, 24),
    Case("Attention", (QUERIES, FEW, FEW, floats(300, 500)), {}, 1, 24),
    Case("Attention", (QUERIES, FEW, FEW, None, PAST, PAST), {"is_causal": 1}, 3, 24),
    Case("BatchNormalization", (IMAGE, *CHANNELS, *RUNNING), {"training_mode": 1}, 3),
    Case("BatchNormalization", (IMAGE, *CHANNELS, *RUNNING), {}, 1),
    Case("Clip", (floats(3, 7, 9000), None, np.float32(1)), {}, 1),
    Case("Conv", (IMAGE, floats(6, 4, 3, 3)), {"group": 2}, 1),
    Case("Conv", (IMAGE, floats(8, 1, 3, 3)), {"group": 8}, 1),
    Case("CumProd", (floats(40, 60, 7), integers(1)), {}, 1, 26),
    Case("Dropout", (floats(40, 5000), None, np.array(True)), {"seed": 3}, 2),
    Case("GRU", (TIMES, *WEIGHTS), {"hidden_size": 16}, 2),
    Case("GRU", (TIMES, *WEIGHTS), {"hidden_size": 16, "activations": ["Elu", "Relu"]}, 2),
    Case("GatherElements", (floats(3, 90, 90), ROWS), {"axis": 1}, 1),
    Case("Gelu", (floats(3, 7, 9000),), {"approximate": "tanh"}, 1),
    Case("Gelu", (floats(3, 7, 9000),), {}, 1),
    Case("GlobalAveragePool", (IMAGE,), {}, 1),
    Case("GroupNormalization", (IMAGE, *CHANNELS), {"num_groups": 2}, 1, 21),
    Case("InstanceNormalization", (IMAGE, *CHANNELS), {}, 1),
    Case("LSTM", (TIMES, *FOUR), {"hidden_size": 16}, 3),
    Case("LSTM", (TIMES, *FOUR), {"hidden_size": 16, "clip": 0.5}, 3),
    Case("LayerNormalization", (floats(2048, 64), floats(64), floats(64)), {}, 3),
    Case("LayerNormalization", (floats(3, 150000), floats(150000)), {}, 3),
    Case("LayerNormalization", (floats(4, 30, 50), floats(30, 1), floats(50)), {"axis": 1}, 1),
    Case("LeakyRelu", (floats(3, 7, 9000),), {}, 1),
    Case("LogSoftmax", (floats(40, 5000),), {}, 1),
    Case("LpNormalization", (floats(300, 300),), {"p": 2}, 1),
    Case("LpPool", (IMAGE,), {"kernel_shape": [3, 3]}, 1),
    Case("MaxPool", (IMAGE,), {"kernel_shape": [3, 3]}, 2),
    Case("ai.gradtool::MaxPoolTraining", (IMAGE,), {"kernel_shape": [3, 3]}, 2),
    Case("PRelu", (floats(3, 7, 9000), floats(7, 1)), {}, 1),
    Case("Pad", (floats(40, 60), integers([0, 3, 0, 5])), {"mode": "edge"}, 1),
    Case("Pad", (floats(40, 60), integers([2, 3, 5, 5])), {"mode": "reflect"}, 1),
    Case("QuantizeLinear", (floats(30, 70, 90), positive(70), np.zeros(70, np.int8)), {}, 1, 20,
         gradient=False),
    Case("RMSNormalization", (floats(300, 700), floats(700)), {}, 1, 23),
    Case("RNN", (TIMES, floats(1, 16, 6), floats(1, 16, 16)), {"hidden_size": 16}, 2),
    Case("ReduceLogSumExp", (floats(30, 50, 61), integers([0, 2])), {}, 1),
    Case("ReduceL1", (floats(2, 3, 20000), integers([1])), {}, 1),
    Case("ReduceMax", (floats(30, 50, 61), integers([1])), {}, 1),
    Case("Resize", (floats(2, 3, 40, 50), None, SCALES), {"mode": "linear"}, 1),
    Case("Resize", (floats(40, 8, 9, 7), None, SCALES), {"mode": "cubic"}, 1),
    Case("Softmax", (floats(4, 300, 70),), {"axis": 1}, 1),
    Case("SoftmaxCrossEntropyLoss", (floats(700, 100), integers(np.arange(700) % 100)), {}, 1),
    Case("Where", (np.arange(60000).reshape(3, 20000) % 3 == 0, *[floats(3, 20000)] * 2), {}, 1),
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A kernel with its arguments; `specs` are those of its outputs, None where one is absent."""

    kernel: Kernel
    inputs: list[Any]
    specs: list[Spec | None]
    attributes: dict[str, Any]

    def subsets(self) -> Iterator[list[Spec | None]]:
        """All outputs, and each one alone."""
        yield self.specs
        wanted = [i for i, s in enumerate(self.specs) if s is not None]
        for slot in wanted if len(wanted) > 1 else ():
            yield [s if i == slot else None for i, s in enumerate(self.specs)]

    def workspace(self, wanted: list[Spec | None]) -> tuple[Spec, ...]:
        """What the kernel declares."""
        host = self.kernel.host
        given = [
            a if a is None or slot in host else spec_of(a) for slot, a in enumerate(self.inputs)
        ]
        return self.kernel.workspace(given, wanted, self.attributes)

    def touched(self, wanted: list[Spec | None], declared: tuple[Spec, ...]) -> int:
        """Where the last byte lies that a call changes, arrays laid as in the arena."""
        last = 0
        for pattern in PATTERNS:
            raw = [np.full(s.bytes, pattern, np.uint8) for s in declared]
            work = [
                r.view(s.dtype).reshape(s.shape) if s.bytes else np.empty(s.shape, s.dtype)
                for r, s in zip(raw, declared, strict=True)
            ]
            out = [None if s is None else np.zeros(s.shape, s.dtype) for s in wanted]
            given = [np.array(a) if isinstance(a, np.ndarray) else a for a in self.inputs]
            self.kernel.function(np, *given, **self.kernel.buffers(out, work), **self.attributes)
            start = 0
            for bytes_ in raw:
                changed = np.flatnonzero(bytes_ != pattern)
                last = max(last, start + int(changed[-1]) + 1 if changed.size else 0)
                start += _aligned(bytes_.size)
        return last

    def check(self) -> bool:
        """Compare what is declared with what is touched; whether there was anything to compare."""
        any_bytes = False
        for wanted in self.subsets():
            declared = self.workspace(wanted)
            total = sum(_aligned(s.bytes) for s in declared)
            any_bytes = any_bytes or total > 0
            last = self.touched(wanted, declared) if total else 0
            assert total - last < ALIGNMENT, (
                f"{self.kernel.name} declares {[s.bytes for s in declared]}, {total} bytes in all, "
                f"and touches the first {last}"
            )
        return any_bytes


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _calls(model: ir.Model, feeds: Feeds) -> Iterator[Call]:
    """The nodes of a model that write into a workspace, and what their kernels are given."""
    known = evaluate(model, feeds)
    for node in model.graph:
        version = model.graph.opset_imports.get(node.domain, 1)
        found = registry.find(node.domain, node.op_type, version)
        if found.allocating or found.work is None:
            continue
        attributes, captured = _with_programs(model, node)
        inputs = [None if v is None else known[v.name] for v in (*node.inputs, *captured)]
        specs = [spec_of(known[v.name]) if v.name else None for v in node.outputs]
        yield Call(found, inputs, specs, attributes)


def _training(case: Case, dtype: Any) -> tuple[ir.Model, Feeds]:
    return differentiated(case, dtype)[:2] if case.gradient else build(case, dtype)


@pytest.mark.sample(3)
@pytest.mark.parametrize("op", sampled(sorted({case.op for case in cases.CASES})))
def test_small_workspaces_are_used_to_the_end(op):
    with np.errstate(all="ignore"):
        for case in cases.CASES:
            if case.op == op:
                for call in _calls(*_training(case, np.float32)):
                    call.check()


@pytest.mark.sample(4, 2.5)
@pytest.mark.parametrize("dtype", sampled([np.float32, np.float16, np.float64]))
@pytest.mark.parametrize("case", LARGE, ids=lambda c: c.id)
def test_workspaces_of_many_blocks_are_used_to_the_end(case, dtype):
    with np.errstate(all="ignore"):
        found = [call.check() for call in _calls(*_training(case, dtype))]

    assert any(found)


@pytest.mark.parametrize("text", CONTROL)
def test_arenas_of_bodies_are_used_to_the_end(text):
    model = parse(text)
    rng = np.random.default_rng(5)
    feeds = {
        v.name: rng.uniform(-1, 1, v.shape.numpy()).astype(np.float32) for v in model.graph.inputs
    }
    found = [call.check() for call in _calls(model, feeds)]

    assert found == [True]


def test_strides_do_not_change_what_is_used():
    """Blocks are as large where inputs lie with gaps, which a declaration does not know."""
    whole = np.random.default_rng(3).uniform(-2, 2, (7, 3, 18000)).astype(np.float32)
    x = whole.swapaxes(0, 1)
    for op in ("Gelu", "LeakyRelu"):
        call = Call(registry.find("", op, 20), [x], [spec_of(x)], {})

        assert not np.array(x).flags.c_contiguous
        assert call.check()

"""What drawn cases are not held to, each for a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drawn.case import Case

Applies = Callable[[Case, str], bool]
# onnxruntime 1.31: operator, when (the case, what it said), why
FORWARD: tuple[tuple[str, Applies, str], ...] = (
    ("*", lambda _, e: "NOT_IMPLEMENTED" in e, "onnxruntime has no kernel of this type"),
    ("*", lambda _, e: "does not support double yet" in e, "onnxruntime has no kernel of double"),
    ("*", lambda _, e: "MLFloat16 data type is not supported with Scatter" in e,
     "onnxruntime scatters no float16 with a reduction"),
    ("*", lambda c, e: c.op in ("RNN", "GRU", "LSTM") and "layout_ == 0" in e,
     "onnxruntime takes sequences first only"),
    ("LRN", lambda c, _: c.array(0).ndim != 4, "onnxruntime takes images only"),
    ("LRN", lambda c, _: c.attributes["size"] % 2 == 0, "onnxruntime refuses even sizes"),
    ("OneHot", lambda c, _: c.array(0).ndim == 0, "onnxruntime refuses a single index"),
    ("Col2Im", lambda c, _: len(c.array(1)) != 2 and max(c.attributes.get("dilations", [1])) > 1,
     "onnxruntime places dilated blocks of lines and volumes otherwise than the reference"),
    ("Conv", lambda _, e: "Invalid input shape" in e,
     "onnxruntime refuses images that are too small for a window"),
    ("Conv", lambda c, e: _same(c) and "Dilation not supported" in e,
     "onnxruntime refuses dilations with SAME padding"),
    ("ConvTranspose", lambda c, e: "output_padding" in e and "output_padding" in c.attributes,
     "onnxruntime refuses output padding that is not less than the stride"),
    ("GridSample", lambda c, _: c.array(0).ndim == 3, "onnxruntime takes images and volumes only"),
    ("*", lambda c, _: "Pool" in c.op and 0 in c.array(0).shape,
     "onnxruntime refuses empty images or channels"),
    ("*", lambda c, e: _pools(c) and _same(c) and "must be non-negative" in e,
     "onnxruntime pads by less than nothing for SAME with strides beyond the kernel"),
    ("*", lambda c, _: _pools(c) and _sticks_out(c),
     "onnxruntime has a result where no window fits"),
    ("Attention", lambda c, _: _masked_twice(c),
     "onnxruntime shows what both a boolean mask and the causal one hide"),
    ("Attention", lambda c, _: _one_query_after_a_past(c),
     "onnxruntime leaves the causal mask out where one query follows a past"),
    ("Slice", lambda c, _: _far_backwards(c),
     "onnxruntime takes the largest integer for the beginning when it slices backwards"),
)  # fmt: skip
REFUSED: tuple[tuple[str, Applies, str], ...] = (
    ("*", lambda _, e: "auto_pad=SAME with a stride needs a known size" in e,
     "SAME padding of open images"),
    ("*", lambda _, e: "the size of its kernel is unknown" in e, "a kernel of open size"),
    ("DeformConv", lambda _, e: "the size of its weights is unknown" in e, "weights of open size"),
    ("*", lambda _, e: "its number of channels is unknown" in e, "an open number of channels"),
    ("Attention", lambda _, e: "its number of heads is unknown" in e, "an open number of heads"),
    ("Attention", lambda _, e: "heads of its mask is unknown" in e, "an open number of heads"),
    ("Det", lambda _, e: "the size of the matrix is open" in e, "a matrix of open size"),
)  # fmt: skip


def why_unlike(case: Case, error: str) -> str:
    """Why onnxruntime differs, where that is no fault of ours; empty if it might be."""
    return _first(FORWARD, case, error)


def why_refused(case: Case, error: str) -> str:
    """Why it is right to refuse sizes that are open; empty if it is not."""
    return _first(REFUSED, case, error)


def _first(table: tuple[tuple[str, Applies, str], ...], case: Case, error: str) -> str:
    return next((w for op, when, w in table if op in (case.op, "*") and when(case, error)), "")


def _pools(case: Case) -> bool:
    return case.op in ("MaxPool", "AveragePool", "LpPool")


def _same(case: Case) -> bool:
    return str(case.attributes.get("auto_pad", "")).startswith("SAME")


def _sticks_out(case: Case) -> bool:
    from gradtool.operators.windows import Window

    sizes = case.array(0).shape[2:]
    window = Window.of(case.attributes["kernel_shape"], sizes, case.attributes, pool=True)
    return any(window.room(a, n) < 0 for a, n in enumerate(sizes))


def _masked_twice(case: Case) -> bool:
    mask = case.inputs[3] if len(case.inputs) > 3 else None
    return mask is not None and mask.array.dtype == bool and bool(case.attributes.get("is_causal"))


def _one_query_after_a_past(case: Case) -> bool:
    """And several keys are new: with one, no key stands behind the query."""
    query, key = (case.array(i).shape[-2] for i in range(2))
    past = len(case.inputs) > 4 and case.inputs[4] is not None and case.array(4).shape[2] > 0
    return past and query == 1 and key > 1 and bool(case.attributes.get("is_causal"))


def _far_backwards(case: Case) -> bool:
    steps: Any = case.array(4) if len(case.inputs) > 4 else []
    return any(s < 0 and e >= 2**31 - 1 for s, e in zip(steps, case.array(2), strict=False))

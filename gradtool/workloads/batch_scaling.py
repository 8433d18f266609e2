"""A training graph at every batch: which of its symbols that is, and what fits into a memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from gradtool import io
from gradtool.errors import UsageError
from gradtool.operators.kernel_sets import Asked
from gradtool.text.units import parse_bytes
from gradtool.text.words import suggest
from gradtool.workloads.names import current
from gradtool.workloads.plans import workloads
from gradtool.workloads.strategies import STRATEGIES

PLANS = ("keep", "mirror", "sqrt", "optimal")


def batch_symbol(model: ir.Model) -> str | None:
    """The leading symbol of the first input, or the one called batch."""
    return leading_symbol(model) or ("batch" if "batch" in io.symbols(model) else None)


def leading_symbol(model: ir.Model) -> str | None:
    """The leading symbol of the first input; None if its size is known."""
    first = next((v for v in model.graph.inputs if not v.is_initializer()), None)
    leading = getattr(first.shape[0], "value", None) if first is not None and first.shape else None
    return str(leading) if leading in io.symbols(model) else None


def max_batch(
    model: ir.Model,
    memory: str | int,
    *,
    plans: Sequence[str] = PLANS,
    optimizer: str = "none",
    dims: Mapping[str, int] | None = None,
    kernels: Asked = "auto",
) -> dict[str, int]:
    """By plan, the largest batch of a training graph whose step fits into a memory; 0 if none does.

    Raises:
        UsageError: the batch is fixed, there is no such plan, or other sizes are open.
    """
    from gradtool.workloads.budgets.batches import largest_batches

    plans = [current(name) for name in plans]
    unknown = [name for name in plans if name not in STRATEGIES]
    if unknown:
        hint = suggest(unknown[0], STRATEGIES) or f"; there are {', '.join(STRATEGIES)}"
        raise UsageError(f"no strategy {unknown[0]!r}{hint}")
    symbol = batch_symbol(model)
    if symbol is None or symbol in (dims or {}):
        raise UsageError("no largest batch to find: the batch is fixed; load the model without it")
    io.require_sizes(model, {symbol, *(dims or {})})
    known = dict(dims or {})
    return largest_batches(
        workloads(model, known, symbol, kernels),
        {name: STRATEGIES[name] for name in plans},
        parse_bytes(memory) if isinstance(memory, str) else memory,
        optimizer=optimizer,
    )

"""Traits of operators beside their parts, declared in `traits.py` of each family.

They are what recompute policies, the count of moved bytes, and the table of operators ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gradtool.graph.families import split_name
from gradtool.graph.registry import Registry

Recompute = Literal["", "product", "never", "cheap"]
Runs = Literal["kernel", "body", "no"]


@dataclass(frozen=True)
class Traits:
    """The traits of one operator.

    Attributes:
        domain: its domain, empty of the standard one.
        op: its name there.
        recompute: its class in recompute policies: a `product` (also convolutions and recurrent
            layers), `never` recomputed by mirroring, or `cheap`.
        residuals: the inputs and outputs that its gradient reads, over all attributes; None where
            nothing is known.
        uncounted: the reason why its operations cannot be counted.
        partial: of input 0 it reads no more than it writes.
        unread: the input of which it reads the shape or the type alone.
        onnxruntime: how stock onnxruntime runs it on the CPU.
    """

    domain: str
    op: str
    recompute: Recompute = ""
    residuals: tuple[str, ...] | None = None
    uncounted: str = ""
    partial: bool = False
    unread: int | None = None
    onnxruntime: Runs = "kernel"

    since = 1


TRAITS = Registry[Traits]("traits", "traits")


def traits(names: str, **declared: Any) -> None:
    """Declare the traits of operators, `Op` or `domain::Op`, with spaces between them.

    Residuals may be one text, with commas between them.
    """
    residuals = declared.pop("residuals", None)
    if isinstance(residuals, str):
        residuals = tuple(filter(None, residuals.split(", ")))
    for name in names.split():
        TRAITS.add(Traits(*split_name(name), residuals=residuals, **declared))


def of(name: str) -> Traits:
    """The traits of an operator, by its full name."""
    domain, op = split_name(name)
    return TRAITS.find(domain, op, 1) or Traits(domain, op)

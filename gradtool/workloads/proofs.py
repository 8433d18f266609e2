"""How good a plan within a budget is, for people and for machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from gradtool.io.documents import is_text
from gradtool.text.json_schema import Count
from gradtool.text.units import format_bytes, format_count, format_percent, format_seconds

if TYPE_CHECKING:
    from gradtool.planning.search.proof import Proof
    from gradtool.workloads.planned import Planned

_COUNTS = {
    "budget": "budget_bytes", "least": "lower_bound_bytes", "extra": "extra_work",
    "bound": "bound_work", "total": "total_work",
}  # fmt: skip
_MOST = 1 << 96  # work or bytes that a document may claim
_UNITS = ("FLOPs", "ns")


class ProofRecord(TypedDict):
    """A plan within a budget: bytes, work in `unit` and in % of one step."""

    budget_bytes: Count
    lower_bound_bytes: Count
    unit: str
    total_work: Annotated[int, "One step without recompute, in the unit."]
    allowed_work: int | None
    extra_work: int
    extra_percent: float
    bound_work: int
    bound_percent: float
    gap_percent: float
    which_bound: str
    how: str
    cut_short: bool


def lines(found: Planned) -> tuple[str, ...]:
    """Extra work, bound and gap of a plan; nothing without a proof."""
    proof = found.proof
    if proof is None:
        return ()
    work = f"extra work {amount(proof.extra, proof.unit)} ({percent(proof, proof.extra)})"
    bound = f"bound {percent(proof, proof.bound)}"
    gap = f"gap {points(proof)} points"
    known = f"{work}, {bound}, {gap}" if proof.extra else "nothing runs again"
    said = [f"{found.name}: {known}"]
    if proof.least:
        allowed = proof.allowed
        share = format_percent(proof.share(allowed or 0))
        what = "" if allowed is None else f" with up to {share} recompute"
        said.append(f"proven: no plan{what} fits in less than {format_bytes(proof.least)}")
    if proof.cut_short:
        rest = "the search had further to go; more time may find another plan"
        said.append(f"{found.name}: cut short: {rest}")
    return tuple(said)


def details(found: Planned) -> tuple[str, ...]:
    """How a plan and its bound were found; nothing without a proof."""
    proof = found.proof
    if proof is None:
        return ()
    bound = f"; bound by {proof.which_bound}" if proof.extra else ""
    return (f"{found.name}: found by {proof.how}{bound}",)


def points(proof: Proof) -> str:
    """The gap in percentage points, to the thousandth; one that is there is never said to be 0."""
    gap = 100 * proof.share(proof.gap)
    return "< 0.001" if proof.gap and gap < 0.0005 else f"{gap:.3f}"


def percent(proof: Proof, work: int) -> str:
    """Work in % of one step, to the thousandth: gaps are small."""
    return f"{100 * proof.share(work):+.3f} %"


def amount(work: int, unit: str) -> str:
    """Work in FLOPs or in time."""
    return format_seconds(work / 1e9) if unit == "ns" else f"{format_count(work)} {unit}"


def proof_json(proof: Proof) -> ProofRecord:
    """A proof for machines."""
    return {
        "budget_bytes": proof.budget,
        "lower_bound_bytes": proof.least,
        "unit": proof.unit,
        "total_work": proof.total,
        "allowed_work": proof.allowed,
        "extra_work": proof.extra,
        "extra_percent": _rounded(proof, proof.extra),
        "bound_work": proof.bound,
        "bound_percent": _rounded(proof, proof.bound),
        "gap_percent": _rounded(proof, proof.gap),
        "which_bound": proof.which_bound,
        "how": proof.how,
        "cut_short": proof.cut_short,
    }


def proof_of(document: Mapping[str, Any]) -> Proof | None:
    """The proof that `proof_json` wrote; None where the document is no such thing."""
    from gradtool.planning.search.proof import Proof

    counts: dict[str, Any] = {field: document.get(key) for field, key in _COUNTS.items()}
    words: dict[str, Any] = {key: document.get(key) for key in ("which_bound", "how", "unit")}
    allowed, cut_short = document.get("allowed_work"), document.get("cut_short")
    is_ours = (
        all(map(_is_count, counts.values()))
        and counts["bound"] <= counts["extra"]
        and all(map(is_text, words.values()))
        and words["unit"] in _UNITS
        and (allowed is None or _is_count(allowed))
    )
    if not is_ours or not isinstance(cut_short, bool):
        return None
    return Proof(**counts, **words, allowed=allowed, cut_short=cut_short)


def _is_count(found: object) -> bool:
    """Whether a JSON value is an amount of bytes or of work, which may pass 64 bits."""
    return type(found) is int and 0 <= found < _MOST


def _rounded(proof: Proof, work: int) -> float:
    return round(100 * proof.share(work), 6)

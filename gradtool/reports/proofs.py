"""How good a plan within a budget is, for people and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradtool.reports.units import format_bytes, format_count, format_percent, format_seconds

if TYPE_CHECKING:
    from gradtool.planning.budget.proof import Proof
    from gradtool.plans import Planned


def lines(found: Planned) -> tuple[str, ...]:
    """Extra work, bound and gap of a plan, and where both come from; nothing without a proof."""
    proof = found.proof
    if proof is None:
        return ()
    work = f"extra work {amount(proof.extra, proof.unit)} ({percent(proof, proof.extra)})"
    bound = f"bound {percent(proof, proof.bound)} ({proof.which_bound})"
    gap = f"gap {100 * proof.share(proof.gap):.3f} points"
    known = f"{work}, {bound}, {gap}" if proof.extra else "nothing runs again"
    said = [f"{known}; found by {proof.how}"]
    if proof.least:
        allowed = proof.allowed
        share = format_percent(proof.share(allowed or 0))
        what = "" if allowed is None else f" that computes {share} again"
        said.append(f"no plan{what} takes less than {format_bytes(proof.least)} (proven)")
    if proof.cut_short:
        said.append("cut short: the best plan so far; more time may find another")
    return tuple(f"{found.name}: {line}" for line in said)


def percent(proof: Proof, work: int) -> str:
    """Work in % of one step, to the thousandth: gaps are small."""
    return f"{100 * proof.share(work):+.3f} %"


def amount(work: int, unit: str) -> str:
    """Work in FLOPs or in time."""
    return format_seconds(work / 1e9) if unit == "ns" else f"{format_count(work)} {unit}"


def proof_json(proof: Proof) -> dict[str, Any]:
    """A proof for machines: bytes, work in `unit` and in % of one step."""
    return {
        "budget_bytes": proof.budget,
        "lower_bound_bytes": proof.least,
        "unit": proof.unit,
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


def _rounded(proof: Proof, work: int) -> float:
    return round(100 * proof.share(work), 6)

"""Every question about a training graph with loops, answered from the frontiers of its forms.

A plan is one of any form, and what it computes again counts beyond the graph that keeps everything.
So a form whose turns are taken again once begins with that work; what is proven of all plans is the
least that is proven of any form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gradtool.workloads.budgets.budget_queries import Answers, work_of
from gradtool.workloads.planned import Planned


@dataclass(frozen=True)
class Form:
    """The answers of one form of a graph, which computes so much more than the graph does."""

    answers: Answers
    extra: int

    def counted(self, found: Planned, total: int) -> Planned:
        """A plan of the form as one of the graph, a step of which computes `total`."""
        proof = found.proof
        assert proof is not None  # noqa: S101 - every answer has one
        extra, how = proof.extra + self.extra, proof.how
        if self.extra:
            how = "turns of loops taken again" + (f", and {how}" if proof.extra else "")
        proof = replace(proof, extra=extra, bound=0, total=total, which_bound="none", how=how)
        form = self.answers.work if self.answers.work.turns else None
        return replace(found, proof=proof, form=form)


class Forms:
    """The plans of all forms of a training graph, the first of which is the graph itself.

    The others have a `share` of the effort of one that is alone.
    """

    def __init__(self, answers: Sequence[Answers], share: float = 1.0) -> None:
        first, self.share = answers[0], share
        self.total, self.kept = first.total, first.kept
        self.forms = [Form(each, max(each.total - self.total, 0)) for each in answers]

    @property
    def known(self) -> Forms:
        """Proven bounds of all plans: see `least` and `least_of`."""
        return self

    @property
    def least(self) -> int:
        """Bytes that every plan takes, whatever it computes again."""
        return self.least_of(None)

    def least_of(self, allowed: int | None) -> int:
        """Least bytes of every plan with no more than `allowed` recomputation."""
        return min(f.answers.known.least_of(_left(allowed, f)) for f in self._within(allowed))

    def within(self, arena: int) -> Planned | None:
        """The plan within a budget that computes least again; None if none was found."""
        best: Planned | None = None
        for form in self.forms:
            if best is None or form.extra < work_of(best):
                found = form.answers.within(arena)
                best = self._better(best, form, found, key=lambda p: (work_of(p), p.peak))
        return None if best is None else self.proven(best, arena)

    def at_most(self, allowed: int | None) -> Planned:
        """The plan of least peak that computes no more than `allowed` again, whatever if None."""
        best: Planned | None = None
        for form in self._within(allowed):
            found = form.answers.at_most(_left(allowed, form))
            best = self._better(best, form, found, key=lambda p: (p.peak, work_of(p)))
        assert best is not None  # noqa: S101 - the graph itself has a plan
        proven = self.proven(best, best.peak)
        assert proven.proof is not None  # noqa: S101 - see `Form.counted`
        least = min(self.least_of(allowed), best.peak)
        return replace(proven, proof=replace(proven.proof, least=least, allowed=allowed))

    def curve(self) -> list[Planned]:
        """Plans of falling peak and rising work, none of which another one beats."""
        points = [f.counted(p, self.total) for f in self.forms for p in f.answers.curve()]
        found: list[Planned] = []
        for each in sorted(points, key=lambda p: (work_of(p), p.peak)):
            if not found or each.peak < found[-1].peak:
                found.append(each)
        return found

    def prove(self, budget: int, effort: float, enough: int | None = None) -> None:
        """Learn the least recomputation within a budget, or a bound above `enough`."""
        for form in self._within(enough):
            form.answers.prove(budget, effort, _left(enough, form))

    def settled(self, found: Planned, budget: int, seconds: float) -> Planned:
        """The plan or a cheaper one, with the bound of a budget that some seconds can prove."""
        rivals = [form for form in self.forms if form.extra < work_of(found)]
        for form in rivals:
            known = form.answers.within(budget)
            if known is not None:
                other = form.answers.settled(known, budget, seconds / len(rivals))
                found = min(found, form.counted(other, self.total), key=work_of)
        return self.proven(found, budget)

    def proven(self, found: Planned, budget: int) -> Planned:
        """A plan with the strongest bound that is known of a budget."""
        proof = found.proof
        assert proof is not None  # noqa: S101 - see `Form.counted`
        bound, how = proof.extra, "that of each form of its loops" if proof.extra else "none"
        for form in self._within(proof.extra):
            known = form.answers.known
            strongest = known.strongest(budget)
            work = form.extra + (0 if strongest is None else strongest.work)
            if work < bound and budget >= known.least_of(None):
                bound, how = work, "none" if strongest is None else strongest.how
        least = self.least_of(None)
        proof = replace(proof, budget=budget, least=least, bound=bound, which_bound=how)
        return replace(found, proof=proof)

    def walk(self) -> None:
        """Walk the frontiers, as far as they were not."""
        for form in self.forms:
            form.answers.walk()

    def _within(self, allowed: int | None) -> Iterator[Form]:
        return (f for f in self.forms if allowed is None or f.extra <= allowed)

    def _better(
        self,
        best: Planned | None,
        form: Form,
        found: Planned | None,
        *,
        key: Callable[[Planned], tuple[int, int]],
    ) -> Planned | None:
        counted = None if found is None else form.counted(found, self.total)
        known = [each for each in (best, counted) if each is not None]
        return min(known, key=key, default=None)


def _left(allowed: int | None, form: Form) -> int | None:
    return None if allowed is None else allowed - form.extra

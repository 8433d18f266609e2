"""Extra work at several instants at once: an integer programme, coarse in time.

Between two instants that follow each other in every order lies a stage.  `run[s, k]` says that step
s runs in stage k, which instant k ends; `kept[v, k]` that storage v is alive at instant k and read
later; `held[v, k]` that an instance of it lives until the step of the next instant runs.  Memory is
counted at the instants, and while some steps run between them.  The optimum is never above that of
any schedule; how it is proven is in docs/bounds.md.

Source: the stages and rows are those of Checkmate (Jain et al. 2020, arXiv:1910.02653), §4; unlike
them stages are few and in no fixed order of steps, and `ever[s, k]` (step s runs after instant k)
adds rows that make one instant's relaxation as strong as its minimum cut.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from gradtool.planning.search import milp
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.milp import Programme, Relaxed, Solved, Touched, Watched
from gradtool.planning.search.mincut import Instant

_GAP = 1e-6
_FEW = 4  # instants up to which `ever` is worth its rows: more of them say nearly as much
_INSIDE = 3  # steps of a stage at which memory is counted: the largest
_BEHIND = 24  # dependents of a watched step whose reads are counted

Columns: TypeAlias = dict[tuple[int, int], int]


class Stages:
    """The programme of some instants, each an ancestor of the next, and a budget in bytes.

    The smallest storages, of `ignored` bytes together, take nothing and stay once they are there.
    """

    def __init__(
        self,
        work: CostModel,
        instants: Sequence[Instant],
        budget: int,
        watched: Collection[Watched] = (),
        ignored: int = 0,
    ) -> None:
        self.work, self.instants, self.budget = work, instants, budget
        self.count = len(instants)
        self.programme = Programme(work.total)
        self.roots = work.large(ignored)
        self._reads = [[r for r in reads if r in self.roots] for reads in work.reads]
        self._readers: dict[int, list[int]] = {}
        self.steps = self._steps()
        self._once = {s: milp.runs_once(work, s) for s in self.steps}
        self.run: Columns = {}
        self.kept: Columns = {}
        self.held: Columns = {}
        self._ever: Columns = {}
        self._more: Columns = {}
        self.fits = True
        self._make_columns()
        self._add_sources()
        self._add_results()
        self._add_ever()
        self._add_memory()
        self._add_once()
        for stage in range(1, self.count):
            self._add_inside(stage)
        for step, after in watched:
            self._watch(step, after)

    def _steps(self) -> list[int]:
        """The makers and readers of large storages, but for readers implied by another step."""
        readers = self._readers
        for step, reads in enumerate(self._reads):
            for r in reads:
                readers.setdefault(r, []).append(step)
        makers = {self.work.maker[r] for r in self.roots}
        asked = {instant.at for instant in self.instants}
        found: list[int] = []
        for step, reads in enumerate(self._reads):
            beside = readers[reads[0]] if reads else []
            also = (t for t in beside if t in makers and set(reads) <= {*self._reads[t]})
            if step in makers or step in asked or (reads and not any(also)):
                found.append(step)
        return found

    # -------------------------------------------------------------------- columns

    def _make_columns(self) -> None:
        """Late steps have not run; the step of an instant ends its stage."""
        new, work = self.programme.column, self.work
        for stage in range(self.count + 1):
            for step in self.steps:
                if self._may_run(step, stage):
                    self.run[step, stage] = new(work.costs[step], integral=True)
        for k, instant in enumerate(self.instants):
            self.programme.lower[self.run[instant.at, k]] = 1
            for r in self.roots:
                if work.maker[r] not in instant.late:
                    self.kept[r, k] = new(integral=True)
                    if k + 1 < self.count:
                        self.held[r, k] = new()
            for step in self.steps if self.count <= _FEW else ():
                if not self._is_done(step, k):
                    self._ever[step, k] = new()

    def _may_run(self, step: int, stage: int) -> bool:
        if stage < self.count and step in self.instants[stage].late:
            return False
        return not (stage and self._is_done(step, stage - 1))

    def _is_done(self, step: int, k: int) -> bool:
        """Whether a step of one run has run when an instant's step has."""
        instant = self.instants[k]
        return self._once[step] and (step in instant.early or step == instant.at)

    # ----------------------------------------------------------------------- rows

    def _add_sources(self) -> None:
        """Reads of a stage are made or found there, at its end held so far; so are kept storages.

        Held storages were kept.
        """
        implies = self.programme.implies
        for (step, stage), run in self.run.items():
            is_end = 0 < stage < self.count and step == self.instants[stage].at
            found = self.held if is_end else self.kept
            for r in self._reads[step]:
                made, there = self.run.get((self.work.maker[r], stage)), found.get((r, stage - 1))
                implies(run, *(column for column in (made, there) if column is not None))
        for (r, k), kept in self.kept.items():
            made, held = self.run.get((self.work.maker[r], k)), self.held.get((r, k - 1))
            implies(kept, *(column for column in (made, held) if column is not None))
        for (r, k), held in self.held.items():
            implies(held, self.kept[r, k])

    def _add_results(self) -> None:
        """Results stay once they are there."""
        for (r, k), kept in self.kept.items():
            if r not in self.work.live_out:
                continue
            maker = self.work.maker[r]
            first = 0 if self._once[maker] else k
            runs = [self.run.get((maker, stage)) for stage in range(first, k + 1)]
            self.programme.row([*((run, 1) for run in runs if run is not None), (kept, -1)])
            if (r, k - 1) in self.held:
                self.programme.implies(self.kept[r, k - 1], self.held[r, k - 1])

    def _add_ever(self) -> None:
        implies = self.programme.implies
        for (step, k), ever in self._ever.items():
            later = (self.run.get((step, k + 1)), self._ever.get((step, k + 1)))
            known = [column for column in later if column is not None]
            implies(ever, *known)
            for column in known:
                implies(column, ever)
            for r in self._reads[step]:
                made, kept = self._ever.get((self.work.maker[r], k)), self.kept.get((r, k))
                implies(ever, *(column for column in (made, kept) if column is not None))

    def _add_once(self) -> None:
        """Every step runs, those of one run at most once."""
        for step in self.steps:
            runs = [self.run.get((step, stage)) for stage in range(self.count + 1)]
            there = [run for run in runs if run is not None]
            self.programme.row([(run, -1) for run in there], -1)
            if self._once[step]:
                self.programme.row([(run, 1) for run in there], 1)

    # --------------------------------------------------------------------- memory

    def _add_memory(self) -> None:
        """At the first run of an instant's step, kept storages are alive beside it."""
        for k, instant in enumerate(self.instants):
            first = milp.at_first(self.work, instant.at)
            self._add_bytes(first, None, {r: self.kept.get((r, k)) for r in self.roots})
            passing = [r for r in self.work.fleeting[instant.at] if r in self.roots]
            if not self.work.is_result[instant.at] and len(passing) == len(
                self.work.fleeting[instant.at]
            ):
                self.programme.row([(self.kept[r, k], -1) for r in passing], -1)

    def _add_bytes(self, touched: Touched, run: int | None, alive: dict[int, int | None]) -> None:
        """The bytes touched by a step and the columns of live storages fit into the budget.

        `run` says whether the step runs; None stands for a step that does.
        """
        size, fixed = self.work.bytes, self.work.simulator.fixed
        own, room = touched.bytes - fixed, self.budget - fixed
        if own > room and run is None:
            self.fits = False
            return
        scale = max(room, 1)
        terms = [
            (column, size[r] / scale)
            for r, column in alive.items() if column is not None and r not in touched.roots
        ]  # fmt: skip
        if run is None:
            self.programme.row(terms, (room - own) / scale)
        elif own > room:
            self.programme.row([(run, 1)])
        else:
            self.programme.row([*terms, (run, own / scale)], room / scale)

    def _add_inside(self, stage: int) -> None:
        """While the largest steps of a stage run, storages held across it are alive beside them."""
        found = [
            (milp.at_any(self.work, step), run) for step in self.steps
            if step != self.instants[stage].at
            and (run := self.run.get((step, stage))) is not None
        ]  # fmt: skip
        found.sort(key=lambda pair: -pair[0].bytes)
        for touched, run in found[:_INSIDE]:
            held = {r: self.held.get((r, stage - 1)) for r in self.roots}
            self._add_bytes(touched, run, held)

    def _watch(self, step: int, after: int) -> None:
        """While a step runs for the first time in a stage, storages used behind it are alive.

        They are those that the stage has made for it and leaves at its end, and those it has found
        and reads in a step that needs this one.
        """
        places = [instant.at for instant in self.instants]
        stage = places.index(after) + 1 if after in places else 0
        run = self.run.get((step, stage))
        if run is None or not 0 < stage < self.count:
            return
        alive = {r: self.held.get((r, stage - 1)) for r in self.roots}
        self._leave(step, stage, alive)
        self._find(step, stage, alive)
        self._add_bytes(milp.at_any(self.work, step), run, alive)

    def _leave(self, step: int, stage: int, alive: dict[int, int | None]) -> None:
        """Storages needed by a step and left by its stage are alive.

        Unless some of the path from there to the step was kept before, or the maker runs twice.
        """
        programme, work, end = self.programme, self.work, self.instants[stage].at
        for r, path in self._needs(step, stage).items():
            left = self.kept.get((r, stage))
            if left is None and r not in work.reads[end]:
                continue
            there, again = self._raised(alive, r), self._again(work.maker[r], stage)
            asked = [self.run[step, stage]]
            if left is not None and r not in work.reads[end]:
                asked.append(left)
            unless = [there, again, *self._found(path, stage)]
            terms = [*((column, 1) for column in asked), *((column, -1) for column in unless)]
            programme.row(terms, len(asked) - 1)

    def _find(self, step: int, stage: int, alive: dict[int, int | None]) -> None:
        """Reads of the steps that need this one are alive.

        Unless the stage makes them, or some of the path from the step to them was kept before.
        """
        work = self.work
        known = {*work.reads[step], *work.writes[step]}
        for other, path in self._needed_by(step, stage).items():
            for r in self._reads[other]:
                kept = self.kept.get((r, stage - 1))
                if r in path or r in known or kept is None:
                    continue
                made = self.run.get((work.maker[r], stage))
                unless = [*self._found(path, stage), *([] if made is None else [made])]
                there = self._raised(alive, r)
                self.programme.row(
                    [(self.run[other, stage], 1), (there, -1), *((c, -1) for c in unless)]
                )

    def _raised(self, alive: dict[int, int | None], r: int) -> int:
        """A column for the liveness of a storage, implied by holding it."""
        held, there = alive[r], self.programme.column()
        if held is not None:
            self.programme.implies(held, there)
        alive[r] = there
        return there

    def _found(self, path: list[int], stage: int) -> list[int]:
        """The columns of a stage finding some of these storages."""
        found = [self.kept.get((r, stage - 1)) for r in path]
        return [column for column in found if column is not None]

    def _again(self, step: int, stage: int) -> int:
        """Whether a step runs more than once in a stage."""
        if (step, stage) not in self._more:
            self._more[step, stage] = self.programme.column(self.work.costs[step])
        return self._more[step, stage]

    def _needs(self, step: int, stage: int) -> dict[int, list[int]]:
        """Storages that a step needs and its stage may make, each with the path from there."""
        paths: dict[int, list[int]] = {}
        waiting: list[tuple[int, list[int]]] = [(step, [])]
        for place, path in waiting:
            for r in self._reads[place]:
                if r not in paths and (self.work.maker[r], stage) in self.run:
                    paths[r] = [*path, r]
                    waiting.append((self.work.maker[r], paths[r]))
        return paths

    def _needed_by(self, step: int, stage: int) -> dict[int, list[int]]:
        """The steps of a stage that need a step, each with the storages on the path there."""
        paths: dict[int, list[int]] = {}
        waiting: list[tuple[int, list[int]]] = [(step, [])]
        for place, path in waiting:
            for r in self.work.fleeting[place]:
                for other in self._readers.get(r, ()):
                    if other not in paths and (other, stage) in self.run:
                        paths[other] = [*path, r]
                        waiting.append((other, paths[other]))
            if len(paths) >= _BEHIND:
                break
        return paths

    # ------------------------------------------------------------------- solution

    def solve(
        self, nodes: int | None = None, seconds: float | None = None, gap: float = _GAP
    ) -> Relaxed | None:
        """The integer programme, as far as some nodes of branch and bound or seconds lead.

        None if there is no solution: no schedule fits.
        """
        solved = self.programme.solve(gap, nodes, seconds) if self.fits else None
        return None if solved is None else self._read(solved)

    def relaxed(self) -> float | None:
        """The bound of the linear relaxation; None if it has no solution."""
        solved = self.programme.solve(_GAP, relaxed=True) if self.fits else None
        return None if solved is None else self._bound(solved)

    def _bound(self, solved: Solved) -> float:
        return max(solved.bound - sum(self.work.costs[s] for s in self.steps), 0.0)

    def _read(self, solved: Solved) -> Relaxed:
        """The runs and kept storages of a solution of the programme."""
        bound = self._bound(solved)
        if solved.values is None:
            return Relaxed(bound, solved.is_closed, [], [])
        chosen = solved.values > 0.5
        runs = [
            frozenset(s for s in self.steps if (s, k) in self.run and chosen[self.run[s, k]])
            for k in range(self.count + 1)
        ]
        kept = [
            frozenset(r for r in self.roots if (r, k) in self.kept and chosen[self.kept[r, k]])
            for k in range(self.count)
        ]
        return Relaxed(bound, solved.is_closed, runs, kept)

"""Cases measured side by side, each in a process whose death spares the others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager

from gradtool import child
from gradtool.check import cache
from gradtool.check.cache import key_of
from gradtool.check.cases import Case
from gradtool.check.measuring import measure
from gradtool.check.verdicts import Outcome
from gradtool.errors import GradtoolError
from gradtool.plugins import search_folders
from gradtool.text.warned import one_line_warnings

_WARNED = ExitStack()  # of a worker, for good
DIED = "the process that planned it died, perhaps for want of memory"


def outcomes(
    cases: Sequence[Case],
    *,
    run: bool = False,
    jobs: int | None = None,
    cached: bool = False,
    advance: Callable[[], object] = lambda: None,
) -> list[Outcome]:
    """The outcomes of measuring cases, in their order.

    At most `jobs` are measured at once: as many as there are processors by default.  `advance` is
    called once for each.  Measurements of `run` are never taken from the cache (`cached`).
    """
    keys = [key_of(case) if cached and not run else None for case in cases]
    found: dict[int, Outcome] = {}
    for number, key in enumerate(keys):
        known = cache.get(key)
        if known is not None:
            found[number] = Outcome(known)
            advance()

    waiting = [number for number in range(len(cases)) if number not in found]
    for number, outcome in _measured([(n, cases[n]) for n in waiting], jobs, run=run):
        found[number] = outcome
        if outcome.metrics is not None:
            cache.put(keys[number], outcome.metrics)
        advance()
    return [found[number] for number in range(len(cases))]


def outcome_of(case: Case, *, run: bool = False) -> Outcome:
    """The outcome of measuring a case, whatever it is; no error tells the folder."""
    try:
        return Outcome(measure(case, run=run))
    except GradtoolError as error:
        said = str(error).replace(str(case.path.resolve()), case.model)
        return Outcome(None, said, error.exit_code)
    except MemoryError:
        return Outcome(None, "out of memory", 4)


def _measured(
    waiting: Sequence[tuple[int, Case]], jobs: int | None, *, run: bool
) -> Iterator[tuple[int, Outcome]]:
    """Numbers of cases and their outcomes, as they come."""
    most = min(jobs or os.cpu_count() or 1, len(waiting))
    if most < 2:
        for number, case in waiting:
            yield number, outcome_of(case, run=run)
        return
    alone = []
    with _pool(most) as pool:
        futures = {pool.submit(outcome_of, case, run=run): (n, case) for n, case in waiting}
        for future in as_completed(futures):
            number, case = futures[future]
            try:
                yield number, future.result()
            except BrokenProcessPool:
                alone.append((number, case))
    for number, case in sorted(alone, key=lambda pair: pair[0]):
        yield number, _alone(case, run=run)


def _alone(case: Case, *, run: bool) -> Outcome:
    """The outcome in a process of its own: when one dies, all that wait in a pool are lost."""
    with _pool(1) as pool:
        try:
            return pool.submit(outcome_of, case, run=run).result()
        except BrokenProcessPool:
            return Outcome(None, DIED, 70)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes, as a copy of this one may hold locks of its threads.

    They leave an interrupt to this process, which then ends them at once, and end with it where it
    is killed.
    """
    context = multiprocessing.get_context("spawn")
    others = {process.pid for process in multiprocessing.active_children()}
    with child.safe_environment():  # the pool starts processes of its own as it is made
        pool = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_begin, initargs=(search_folders(),)
        )
        try:
            yield pool
        except BaseException:
            for process in multiprocessing.active_children():
                if process.pid not in others:
                    process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(folders: Sequence[str]) -> None:
    """Find named modules like the parent, leave interrupts to it, do not outlive it.

    A worker holds both ends of the pipe that it waits on, so that it would wait for ever.
    """
    search_folders().extend(folders)
    _WARNED.enter_context(one_line_warnings())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

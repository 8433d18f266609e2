"""Steps of `gradtool check`: cases are measured and judged, and baselines recorded."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.check.baselines import Baseline
    from gradtool.check.cases import Case
    from gradtool.check.config import Config
    from gradtool.check.revisions import Revision
    from gradtool.check.verdicts import Judged, Outcome, Rules
    from gradtool.commands.output import Reporter
    from gradtool.comparison.metrics import Metrics
    from gradtool.reports.gate import GateRun

Measured = list[tuple["Case", "Outcome", "Baseline | None"]]


def judged(
    reporter: Reporter, config: Config, cases: Sequence[Case], flags: Mapping[str, Any]
) -> GateRun:
    """The cases measured, judged, and recorded if asked for."""
    from gradtool.check.thresholds import parse_threshold
    from gradtool.check.verdicts import Rules, verdicts
    from gradtool.reports.gate import GateRun

    rules = Rules(
        tuple(map(parse_threshold, flags["fail_on"])),
        allow_new=flags["allow_new"],
        fail_on_stale=flags["fail_on_stale"],
        base=flags["base"] or "",
    )
    if flags["base"] is not None:
        found = _against(reporter, config, cases, flags)
    else:
        if not flags["update"]:
            cases = [_as_recorded(config, case) for case in cases]
        outcomes = _outcomes(reporter, cases, flags)
        found = [
            _with_baseline(config, case, outcome, update=flags["update"])
            for case, outcome in zip(cases, outcomes, strict=True)
        ]
        _say_former(reporter, [base for _, _, base in found], update=flags["update"])
    told = verdicts(found, rules)
    if flags["update"]:
        wanted = _wanted(found, rules, only_improved=flags["only_improved"])
        told = _record(reporter, config, wanted, told)
    _remarks(reporter, config, told, flags)
    return GateRun(told, _place(config.path), rules.base)


def _outcomes(reporter: Reporter, cases: Sequence[Case], flags: Mapping[str, Any]) -> list[Outcome]:
    from gradtool.check.jobs import outcomes

    with reporter.bar("planning cases", total=len(cases)) as shown:
        return outcomes(
            cases,
            run=flags["run"],
            jobs=flags["jobs"],
            cached=not flags["no_cache"],
            advance=shown.advance,
        )


def _as_recorded(config: Config, case: Case) -> Case:
    """A case with the kernels of its baseline, unless it has its own."""
    from gradtool.check import baselines
    from gradtool.operators.kernel_sets import AUTO
    from gradtool.workloads.names import KERNELS, options_for

    if case.kernels.get("kernels", AUTO) != AUTO:
        return case
    try:
        recorded = baselines.read(config.baseline, case)
    except UsageError:
        return case
    if recorded is None or recorded.made_for["kernels"] not in KERNELS:
        return case
    return replace(case, kernels=options_for(recorded.made_for["kernels"]))


def _with_baseline(
    config: Config, case: Case, outcome: Outcome, *, update: bool
) -> tuple[Case, Outcome, Baseline | None]:
    """An outcome beside its baseline.

    A damaged file is an error unless it is replaced; so is a plan that cannot replace it.
    """
    from gradtool.check import baselines
    from gradtool.check.verdicts import Outcome

    if update and outcome.metrics is not None and outcome.metrics.cut_short:
        return case, Outcome(None, baselines.CUT_SHORT, 1), None
    try:
        return case, outcome, baselines.read(config.baseline, case)
    except UsageError as error:
        if update:
            return case, outcome, None
        return case, Outcome(None, str(error), error.exit_code), None


def _against(
    reporter: Reporter, config: Config, cases: Sequence[Case], flags: Mapping[str, Any]
) -> Measured:
    """Outcomes beside the same cases' with the files of another revision."""
    from gradtool.check.baselines import Baseline
    from gradtool.check.revisions import Revision
    from gradtool.check.verdicts import Outcome

    with tempfile.TemporaryDirectory(prefix="gradtool-") as folder:
        revision = Revision(flags["base"], config.folder, Path(folder))
        there, before = _earlier(revision, config.path, cases)
        both = iter(_outcomes(reporter, [*cases, *there], flags))
        now = [(case, next(both)) for case in cases]
        before.update(zip((case.name for case in there), both, strict=True))
    found: Measured = []
    for case, outcome in now:
        base = before.get(case.name)
        if base is None or outcome.metrics is None:
            found.append((case, outcome, None))
        elif base.metrics is None:
            error = f"at {flags['base']}: {base.error}"
            found.append((case, Outcome(None, error, base.exit_code), None))
        else:
            found.append((case, outcome, Baseline(base.metrics, case.made_for)))
    return found


def _earlier(
    revision: Revision, configuration: Path, cases: Sequence[Case]
) -> tuple[list[Case], dict[str, Outcome]]:
    """Cases of the revision, and by name the outcomes of others with unreadable files."""
    from gradtool.check.verdicts import Outcome

    there, wrong = [], {}
    for case in cases:
        try:
            found = revision.case(case, configuration)
        except UsageError as error:
            wrong[case.name] = Outcome(None, str(error), error.exit_code)
            continue
        if found is not None:
            there.append(found)
    return there, wrong


def _wanted(
    found: Measured, rules: Rules, *, only_improved: bool
) -> dict[str, tuple[Case, Metrics]]:
    """The cases to record, by name: all planned ones, or only improved ones."""
    from gradtool.check.verdicts import judge

    lenient = replace(rules, fail_on_stale=False)
    return {
        case.name: (case, outcome.metrics)
        for case, outcome, baseline in found
        if outcome.metrics is not None
        and (not only_improved or judge(case, outcome, baseline, lenient).verdict == "improved")
    }


def _record(
    reporter: Reporter,
    config: Config,
    wanted: Mapping[str, tuple[Case, Metrics]],
    told: Sequence[Judged],
) -> tuple[Judged, ...]:
    """Write baselines; cases that fail for nothing but their baseline now pass."""
    from gradtool.check import baselines
    from gradtool.text.words import some

    changed = baselines.write(config.baseline, wanted.values())
    if changed:
        files = some([baselines.path_of(config.baseline, case).name for case in changed], 4)
        reporter.say(f"recorded in {config.baseline}: {files}")
    names = {case.name for case in changed}
    return tuple(
        replace(each, verdict="updated", reasons=(), grown=(), exit_code=0)
        if each.case.name in names and each.verdict != "over limit"
        else each
        for each in told
    )


def _remarks(
    reporter: Reporter, config: Config, told: Sequence[Judged], flags: Mapping[str, Any]
) -> None:
    """Say remarks beside the verdicts."""
    from gradtool.check import baselines
    from gradtool.text.words import some

    cases: dict[str, list[str]] = {}
    for each in told:
        passed = () if each.failed else each.reasons
        for line in (*(each.metrics.notes if each.metrics else ()), *passed):
            cases.setdefault(line, []).append(each.case.name)
    for line, names in cases.items():
        reporter.say(f"{some(names, 4)}: {line}")
    if flags["base"] is None:
        for name in baselines.orphans(config.baseline, config.cases):
            reporter.say(f"{config.baseline / name}: is of no case; delete it")


def _say_former(reporter: Reporter, recorded: Sequence[Baseline | None], *, update: bool) -> None:
    """One line about baselines of numpy's kernels, once the default, unless replaced."""
    from gradtool.text.words import count

    former = sum(
        base is not None and base.is_former and base.made_for["kernels"] == "numpy"
        for base in recorded
    )
    if former and not update:
        reporter.say(
            f"{count(former, 'baseline')} of numpy's kernels, the former default: planned for "
            "those again; --update records the kernels of --kernels auto"
        )


def _place(path: Path) -> str:
    """The configuration from the root of its repository, as links to it go."""
    real = path.resolve()
    root = next((folder for folder in real.parents if (folder / ".git").exists()), real.parent)
    return real.relative_to(root).as_posix()


def exit_code(gate: GateRun, *, zero: bool) -> int:
    """The code of the gravest outcome; `zero` forgives verdicts, not errors."""
    codes = [each.exit_code for each in gate.judged]
    code = max(codes, default=0)
    return 0 if zero and code == 1 else code

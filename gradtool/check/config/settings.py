"""From the tables of a configuration to cases and rules.

    [tool.gradtool.check]
    fail-on = ["peak:1%+1MiB"]
    baseline = "gradtool-baseline"

    [[tool.gradtool.case]]
    model = "models/resnet50.onnx"
    dims = { batch = [8, 32] }
    plan = "mirror"
    limit = { peak = "2.5GiB" }

In a file of its own, `gradtool.toml`, the tables are `[check]` and `[[case]]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gradtool.check.cases import Case
from gradtool.check.config.cases import cases_of, thresholds
from gradtool.check.config.files import read
from gradtool.check.config.tables import Table
from gradtool.check.thresholds import parse_threshold
from gradtool.errors import UsageError

KEYS = ("check", "case")
CHECK_KEYS = ("fail-on", "baseline")
BASELINE = "gradtool-baseline"
DEFAULT = (parse_threshold("peak:1%+1MiB"),)


@dataclass(frozen=True)
class Config:
    """Cases, and the folder of their baselines."""

    path: Path
    cases: tuple[Case, ...]
    baseline: Path

    @property
    def folder(self) -> Path:
        """The folder from which paths of the configuration start."""
        return self.path.parent


def load(path: Path) -> Config:
    """Read a configuration.

    Raises:
        UsageError: naming file, table and key of the first mistake.
    """
    found, lines = read(path)
    top = Table(found, str(path), KEYS)
    check = Table(found.get("check", {}), f"{path}: check", CHECK_KEYS)
    rules = thresholds(check, DEFAULT)
    tables = found.get("case", [])
    if not isinstance(tables, list):
        top.refuse("case", "[[case]], with two brackets")
    if len(lines) != len(tables):
        lines = [1] * len(tables)
    cases = [
        case
        for number, (table, line) in enumerate(zip(tables, lines, strict=True), 1)
        for case in cases_of(table, path, number, line, rules)
    ]
    _distinct(cases, path)
    return Config(path, tuple(cases), path.parent / _baseline(check))


def require_no_code(config: Config) -> None:
    """Refuse a configuration that imports code: its author may be anybody.

    Raises:
        UsageError: naming file, case and key.
    """
    from gradtool.losses.terms import code_of

    for case in config.cases:
        for text in case.gradient.get("loss", ()):
            code = code_of(text)
            if code is not None:
                raise UsageError(
                    f"{config.path}: case {case.group!r}: loss = {text!r} would run code, {code}: "
                    "pass --allow-code if you trust it"
                )


def _baseline(check: Table) -> str:
    """The folder of baselines: inside that of the configuration."""
    given = check.text("baseline", BASELINE)
    path = PurePosixPath(given)
    if path.is_absolute() or ".." in path.parts or "\\" in given or ":" in given:
        check.refuse("baseline", "a folder beside the configuration, as in 'gradtool-baseline'")
    return given


def _distinct(cases: Sequence[Case], path: Path) -> None:
    """Refuse cases of one name, or of one baseline."""
    seen: dict[str, Case] = {}
    for case in cases:
        other = seen.setdefault(case.slug.casefold(), case)
        if other is not case:
            raise UsageError(
                f"{path}: cases {other.name!r} and {case.name!r} have the same baseline file: give "
                "one of them another name"
            )

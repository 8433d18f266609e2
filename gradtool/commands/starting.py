"""Steps of `gradtool init`: models become cases, are planned, and a configuration is written."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtool.errors import GradtoolError, ModelError, UsageError
from gradtool.text.words import suggest

if TYPE_CHECKING:
    from gradtool.check.cases import Case
    from gradtool.check.verdicts import Judged
    from gradtool.commands.discovery import Sizes
    from gradtool.commands.output import Reporter
    from gradtool.comparison.metrics import Metrics


@dataclass(frozen=True)
class Started:
    """The cases that can be planned, as tables and measured; why other models have none."""

    tables: tuple[Mapping[str, Any], ...]
    cases: tuple[tuple[Case, Metrics], ...]
    judged: tuple[Judged, ...]
    left_out: Mapping[str, str]


def target(given: str | None, *, force: bool) -> Path:
    """The file to write: `--config`, `pyproject.toml` if there is one, else `gradtool.toml`.

    Raises:
        UsageError: there is a configuration, and `force` is not given.
    """
    from gradtool.check.config.files import OWN, SHARED
    from gradtool.check.starter import has_section
    from gradtool.io import atomic

    there = [Path(name) for name in (OWN, SHARED) if os.path.lexists(name)]
    path = Path(given) if given is not None else there[0] if there else Path(OWN)
    if given is None and path.is_symlink():
        raise UsageError(f"{path}: is a link: to write through it, name it with --config")
    if has_section(path) and not force:
        raise UsageError(f"{path} is a configuration already; pass --force to replace it")
    atomic.target(path, force=True)
    return path


def require_baselines(path: Path) -> None:
    """Refuse baselines that would be written outside the repository of a configuration.

    Raises:
        UsageError: the folder of their name leads there.
    """
    from gradtool.check.config import inside
    from gradtool.check.config.settings import BASELINE

    inside.require_inside(path.parent / BASELINE, inside.root_of(path.parent), BASELINE)


def found() -> list[str]:
    """The models of this folder and below that gradtool did not write.

    Raises:
        UsageError: there is none.
    """
    from gradtool.check.starter import models_below
    from gradtool.io.ours import is_ours

    models = [model for model in models_below(Path.cwd()) if not is_ours(Path(model))]
    if not models:
        raise UsageError("there is no .onnx file in this folder or below: name a model")
    return models


def start(
    reporter: Reporter,
    path: Path,
    models: Sequence[str],
    plan: str,
    sizes: Sizes,
    *,
    allow_outside: bool = False,
) -> Started:
    """A case for each model, planned; outside the repository only where allowed.

    Raises:
        UsageError: no model can be planned, a size is of no symbol, or a value of no input.
    """
    from gradtool.check import jobs
    from gradtool.check.verdicts import Rules, judge

    tables, left_out = _tables(reporter, path, models, plan, sizes)
    if not allow_outside:
        tables = [table for table in tables if _is_inside(table, path, left_out)]
    cases = [_case(table, path) for table in tables]
    with reporter.bar("planning cases", total=len(cases)) as shown:
        outcomes = jobs.outcomes(cases, cached=True, advance=shown.advance)
    planned = []
    for table, case, outcome in zip(tables, cases, outcomes, strict=True):
        if outcome.metrics is None:
            left_out[table["model"]] = _without_path(outcome.error, case.path)
        else:
            planned.append((table, case, outcome))
    for model, why in left_out.items():
        reporter.say(f"{model}: no case: {why}")
    if not planned:
        raise UsageError("no model here can be planned, so there is nothing to check")
    return Started(
        tuple(table for table, _, _ in planned),
        tuple((case, outcome.metrics) for _, case, outcome in planned if outcome.metrics),
        tuple(judge(case, o, None, Rules(allow_new=True)) for _, case, o in planned),
        left_out,
    )


def text_of(path: Path, started: Started) -> str:
    """The whole new text of the configuration."""
    from gradtool.check import starter
    from gradtool.check.config.files import SHARED

    shared = path.name == SHARED
    section = starter.configuration(started.tables, started.left_out, shared=shared)
    if shared and path.exists():
        return starter.added_to(starter.read(path), section, path)
    return section


def write(path: Path, text: str) -> None:
    """Write the configuration, whole or not at all."""
    from gradtool.io import atomic

    data = text.encode("utf-8")
    atomic.write([atomic.Output(atomic.target(path, force=True), lambda file: file.write(data))])


def _tables(
    reporter: Reporter, path: Path, models: Sequence[str], plan: str, sizes: Sizes
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Tables of the readable models, and the errors of the others."""
    from gradtool.check.starter import case_names
    from gradtool.io import parse_dim, parse_set

    given, values = dict(map(parse_dim, sizes.dims)), dict(map(parse_set, sizes.values))
    places = dict(zip([_from(path.parent, model) for model in models], models, strict=True))
    constants = _constants(places, values)
    symbols, left_out = _symbols(places, constants)
    known = dict.fromkeys(name for names in symbols.values() for name in names)
    for name in given:
        if name not in known:
            raise UsageError(f"--dim {name}: no model here has such a size{suggest(name, known)}")
    tables = []
    for model, name in zip(symbols, case_names(list(symbols)), strict=True):
        found = {symbol: given.get(symbol, 1) for symbol in symbols[model]}
        assumed = ", ".join(f"{symbol}=1" for symbol in found if symbol not in given)
        if assumed:
            reporter.say(f"{name}: assumed {assumed}: write yours into {path}")
        table = {"name": name, "model": model, "dims": found, "plan": plan}
        tables.append(table | {"set": constants[model]})
    return tables, left_out


def _constants(models: Mapping[str, str], values: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The values of the inputs that each model has, as a configuration says them."""
    from gradtool.io import read

    if not values:
        return {place: {} for place in models}
    inputs: dict[str, list[str]] = {place: [] for place in models}
    for place, model in models.items():
        with suppress(ModelError):  # which loading it tells
            inputs[place] = [value.name for value in read.from_file(Path(model)).graph.input]
    known = dict.fromkeys(name for names in inputs.values() for name in names)
    for name in values:
        if name not in known:
            raise UsageError(f"--set {name}: no model here has such an input{suggest(name, known)}")
    return {
        place: {name: _said(name, text) for name, text in values.items() if name in names}
        for place, names in inputs.items()
    }


def _said(name: str, text: str) -> Any:
    """A value as TOML has it: a number, true or false, or a list."""
    listed = f"[{text}]" if "," in text and not text.startswith("[") else text
    try:
        return tomllib.loads(f"value = {listed.lower()}")["value"]
    except tomllib.TOMLDecodeError:
        raise UsageError(f"--set {name}={text}: is no number, true or false") from None


def _symbols(
    models: Mapping[str, str], constants: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The open sizes of each model, by its path in the configuration."""
    from gradtool import io
    from gradtool.workloads.opening import load

    symbols: dict[str, tuple[str, ...]] = {}
    left_out: dict[str, str] = {}
    for place, model in models.items():
        if any("\ud800" <= char <= "\udfff" for char in place):
            left_out[place] = "its name is not Unicode, which a configuration is"
            continue
        try:
            symbols[place] = tuple(io.symbols(load(model, values=constants[place])))
        except GradtoolError as error:
            left_out[place] = _without_path(str(error), Path(model))
    return symbols, left_out


def _without_path(error: str, model: Path) -> str:
    """An error without where the model lies on this machine."""
    return error.removeprefix(f"{model.resolve()}: ").removeprefix(f"{model}: ")


def _from(folder: Path, model: str) -> str:
    """The path of a model from a folder, as a configuration says it."""
    if model == "-":
        raise UsageError("a case needs a file: standard input is none")
    return Path(os.path.relpath(model, folder)).as_posix()


def _case(table: Mapping[str, Any], path: Path) -> Case:
    from gradtool.check.config.cases import cases_of
    from gradtool.check.starter import RULE
    from gradtool.check.thresholds import parse_threshold

    (case,) = cases_of(table, path, 1, 1, [parse_threshold(RULE)])
    return case


def _is_inside(table: Mapping[str, Any], path: Path, left_out: dict[str, str]) -> bool:
    """Whether the files of a case lie in the repository; why not is noted."""
    from gradtool.check.config import inside

    case = _case(table, path)
    try:
        inside.require_case(case, inside.root_of(path.parent))
    except UsageError as error:
        left_out[case.model] = str(error).removeprefix(f"case {case.name!r}: ")
        return False
    return True

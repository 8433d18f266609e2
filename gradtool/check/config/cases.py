"""A `[[case]]` table as cases: one for each combination of the sizes in its lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from gradtool.check.cases import Case
from gradtool.check.config.plans import plan_of
from gradtool.check.config.tables import Table, is_number, is_size
from gradtool.check.thresholds import Threshold, parse_amount, parse_threshold
from gradtool.comparison.metrics import METRICS, metric_named
from gradtool.errors import UsageError
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.options import Option, options_of
from gradtool.workloads.run_options import KernelOptions

# The optimizer is part of the plan, whose budget may count its state.
GRADIENT = {o.key: o for o in options_of(GradOptions).values() if o.key != "optimizer"}
PLANNED_FOR = {option.key: option for option in options_of(KernelOptions).values()}
KEYS = (
    "name", "model", "dims", "shapes", "batch", "set", "keep-cache", "plan", "limit", "fail-on",
    *PLANNED_FOR, *GRADIENT,
)  # fmt: skip
LONGEST = 100  # characters of the name of a case


def cases_of(
    found: object, path: Path, number: int, line: int, rules: Sequence[Threshold]
) -> Iterator[Case]:
    """The cases of the `number`-th table of the configuration at `path`.

    `rules` are those of a table that has none.

    Raises:
        UsageError: naming file, case and key of the first mistake.
    """
    table = Table(found, f"{path}: case {number}", KEYS)
    if "model" not in table:
        raise UsageError(f"{table.where}: has no model: write model = 'FILE.onnx'")
    model = table.text("model", "")
    name = _name(table, model)
    table.where = f"{path}: case {name!r}"
    sizes = _dims(table)
    base = Case(
        name=name,
        group=name,
        model=model,
        folder=path.parent,
        plan=plan_of(table),
        shapes=_shapes(table),
        batch=table.size("batch"),
        values=_values(table),
        keep_cache=table.flag("keep-cache", default=False),
        gradient=_options(table, GRADIENT),
        kernels=_kernels(table),
        limit=_limits(table),
        fail_on=thresholds(table, rules),
        line=line,
    )
    listed = [name for name, choices in sizes.items() if len(choices) > 1]
    for combination in product(*sizes.values()):
        dims = dict(zip(sizes, combination, strict=True))
        said = ",".join(f"{symbol}={dims[symbol]}" for symbol in listed)
        yield replace(base, name=f"{name}[{said}]" if said else name, dims=dims)


def thresholds(table: Table, default: Sequence[Threshold]) -> tuple[Threshold, ...]:
    """The rules under `fail-on`, or the default without such a key."""
    if "fail-on" not in table:
        return tuple(default)
    try:
        return tuple(parse_threshold(text) for text in table.texts("fail-on"))
    except UsageError as error:
        raise UsageError(f"{table.where}: fail-on: {error}") from error


def _name(table: Table, model: str) -> str:
    name = table.text("name", Path(model).stem or model)
    if not name.isprintable() or len(name) > LONGEST:
        table.refuse("name", f"at most {LONGEST} characters, all of them printable")
    return name


def _dims(table: Table) -> dict[str, list[int]]:
    """The sizes of each symbol: one, or several of which each makes a case."""
    dims, found = table.named("dims"), {}
    for symbol, given in dims.found.items():
        sizes = given if isinstance(given, list) else [given]
        if not sizes or not all(is_size(size, 0) for size in sizes) or len(set(sizes)) < len(sizes):
            dims.refuse(symbol, "a whole number, or a list of different ones")
        found[symbol] = sizes
    return found


def _shapes(table: Table) -> dict[str, tuple[int, ...]]:
    from gradtool.io.dims import parse_shape

    shapes, found = table.named("shapes"), {}
    for name, given in shapes.found.items():
        if isinstance(given, list) and all(is_size(size, 0) for size in given):
            found[name] = tuple(given)
            continue
        try:
            found[name] = parse_shape(f"{name}={given if isinstance(given, str) else ''}")[1]
        except UsageError:
            shapes.refuse(name, "sizes, as in '32x3x224x224'")
    return found


def _values(table: Table) -> dict[str, Any]:
    """The given values by input: a number, true or false, or a list of those."""
    values = table.named("set")
    for name, given in values.found.items():
        listed = given if isinstance(given, list) else [given]
        if not listed or not all(isinstance(each, bool) or is_number(each) for each in listed):
            values.refuse(name, "a number, true or false, or a list of them")
    return dict(values.found)


def _kernels(table: Table) -> dict[str, Any]:
    """Values of `KernelOptions`: those that are given."""
    found = _options(table, PLANNED_FOR)
    if "exact_conv" in found and found.get("kernels") != "native":
        table.refuse("exact-conv", "kernels = 'native' beside it, or leave it out")
    return found


def _options(table: Table, known: Mapping[str, Option]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, option in known.items():
        if key not in table:
            continue
        given = _READERS[option.kind](table, option)
        if _names_a_file(given):
            table.refuse(key, "the names or globs themselves: @FILE is for the command line")
        if option.kind not in ("flag", "globs") or given != option.default:
            found[option.name] = given
    return found


def _names_a_file(given: Any) -> bool:
    texts = given if isinstance(given, list) else [given]
    return any(isinstance(text, str) and text.startswith("@") for text in texts)


def _labels(table: Table) -> str | dict[str, str]:
    """The name of the labels, or one for each output."""
    if not isinstance(table.found["labels"], dict):
        return table.text("labels", "")
    labels = table.named("labels")
    return {output: labels.text(output, "") for output in labels.found}


def _flag_or_globs(table: Table, key: str) -> bool | list[str]:
    """True or false, or globs."""
    found = table.found[key]
    texts = [found] if isinstance(found, str) else found
    if isinstance(found, bool):
        return found
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        table.refuse(key, "true or false, a glob or a list of globs")
    return texts


_READERS: Mapping[str, Callable[[Table, Option], Any]] = {
    "flag": lambda table, option: table.flag(option.key, default=option.default),
    "globs": lambda table, option: _flag_or_globs(table, option.key),
    "texts": lambda table, option: list(table.texts(option.key)),
    "names": lambda table, option: list(table.texts(option.key)),
    "labels": lambda table, _: _labels(table),
    "choice": lambda table, option: table.choice(option.key, option.choices, option.default),
    "whole": lambda table, option: table.size(option.key, least=option.least or 0),
    "number": lambda table, option: table.number(option.key),
}


def _limits(table: Table) -> dict[str, int]:
    limit, found = table.named("limit"), {}
    for key, given in limit.found.items():
        metric = metric_named(key, limit.where)
        if not is_size(given, 0) and not isinstance(given, str):
            limit.refuse(key, f"a number of {METRICS[metric].unit}")
        try:
            found[metric] = parse_amount(metric, given)
        except UsageError as error:
            raise UsageError(f"{limit.where}: {key}: {error}") from error
    return found

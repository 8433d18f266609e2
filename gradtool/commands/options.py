"""Flags that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from gradtool.commands.call import Choice, Globs, Grouped
from gradtool.errors import UsageError
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.names import current
from gradtool.workloads.options import SEVERAL, Option, options_of
from gradtool.workloads.run_options import KernelOptions

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, shown in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


class NamedPath(click.Path):
    """A nonempty path; completed by the shell, checked by whoever opens it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


PATH = NamedPath(allow_dash=True, readable=False)

model_argument = click.argument("model", required=False, type=PATH)


def file_flag(flags: str, metavar: str, help: str, name: str = "") -> Decorator:  # noqa: A002 - click's
    """A flag that names a file; `-o/--output` are two names of it."""
    named = (*flags.split("/"), *filter(None, [name]))
    return click.option(*named, metavar=metavar, type=PATH, help=help)


def switch(flag: str, help: str) -> Decorator:  # noqa: A002 - click's
    """A flag that is there or not."""
    return click.option(flag, is_flag=True, help=help)


def top_option(what: str) -> Decorator:
    """`--top`, the number of rows that are shown."""
    return click.option(
        "--top", type=click.IntRange(min=1), default=12, show_default=True, metavar="N",
        help=f"Show the N largest {what}.",
    )  # fmt: skip


external_data_option = click.option(
    "--external-data", type=Choice(["auto", "always", "never"]), default="auto",
    show_default=True, help="Write weights to a file of their own.",
)  # fmt: skip

set_option = click.option(
    "--set", "values", multiple=True, metavar="INPUT=VALUE",
    help="Make a constant of an input, as in rate=16000; what never runs then is left out.",
)  # fmt: skip

keep_cache_option = switch(
    "--keep-cache", "Leave a decoder's key/value caches inputs and outputs; else they are empty."
)

sizes_without_batch = together(
    click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE",
                 help="Give a size to a symbol, wherever it occurs."),
    click.option("--shape", "shapes", multiple=True, metavar="INPUT=SIZES",
                 help="Give a shape to an input, as in x=32x3x224x224."),
    set_option,
    keep_cache_option,
)  # fmt: skip

head_option = click.option(
    "--head", metavar="NAME:CLASSES",
    help="Put a new linear layer on a value, in place of the outputs of MODEL: head.weight and "
         "head.bias.")  # fmt: skip

size_options = together(
    sizes_without_batch,
    click.option("--batch", type=click.IntRange(min=1), metavar="N",
                 help="Give a size to the leading symbol of the first input."),
)  # fmt: skip


def memory_size(_ctx: click.Context, _param: click.Parameter, given: str | None) -> int | None:
    """`8GiB` as bytes."""
    if given is None:
        return None
    from gradtool.text.units import parse_bytes

    return parse_bytes(given)


def _seconds(_ctx: click.Context, _param: click.Parameter, given: str | None) -> float | None:
    if given is None:
        return None
    from gradtool.workloads.budgets.limits import parse_seconds

    return parse_seconds(given)


class Named(Choice):
    """A choice of names, of which an earlier one is taken too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(current(value), param, ctx)


def flag(option: Option, *more: str) -> Decorator:
    """An option of a record as one of a command; `more` are further flags, or its parameter."""
    how: dict[str, Any] = {"metavar": option.metavar, "help": option.help}
    how["cls"] = Globs if option.kind == "globs" else Grouped
    how["group"] = option.group
    if option.kind in SEVERAL:
        how["multiple"] = True
    elif option.kind == "flag":
        how["is_flag"] = True
        if option.default is True:
            how |= {"flag_value": False, "default": True}
            more = (option.name, *more)
    elif option.kind == "switch" and option.default is None:
        how["default"] = None
    elif option.kind != "globs" and option.default is not None:
        how |= {"default": option.default, "show_default": True}
    if option.kind in _TYPES:
        how["type"] = _TYPES[option.kind](option)
    if option.kind in _CALLBACKS:
        how["callback"] = _CALLBACKS[option.kind]
    if option.shown:
        how["help"] += f"  [default: {option.shown}]"
    return click.option(option.flag, *more, **how)


_TYPES: Mapping[str, Callable[[Option], click.ParamType[Any]]] = {
    "choice": lambda option: Choice(option.choices),
    "plan": lambda option: Named(option.choices),
    "whole": lambda option: click.IntRange(option.least, option.most),
    "number": lambda option: click.FloatRange(
        option.least if option.above is None else option.above,
        option.most,
        min_open=option.above is not None,
    ),
    "path": lambda _: PATH,
}
_CALLBACKS = {"seconds": _seconds, "bytes": memory_size}


def flags(record: type[Any], *, without: Collection[str] = (), **defaults: Any) -> Decorator:
    """The options of a record but for some, in its order, and its rules.

    `defaults` are those of a command where it has its own.
    """
    named = [option for name, option in options_of(record).items() if name not in without]
    own = (replace(each, default=defaults.get(each.name, each.default)) for each in named)
    shown = together(*map(flag, own))

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        decorated = shown(function)
        decorated.records = (*getattr(function, "records", ()), record)  # type: ignore[attr-defined]
        return decorated

    return decorate


def filled(record: type[R], options: Mapping[str, Any], **more: Any) -> R:
    """A record of the options of a command line; a list that nobody gave is the default.

    Raises:
        UsageError: a file of names cannot be read, or two options cannot be combined.
    """
    found: dict[str, Any] = {}
    for name, option in options_of(record).items():
        if name in options and not (option.kind in SEVERAL and len(options[name] or ()) == 0):
            found[name] = _READERS.get(option.kind, _as_given)(options[name])
    return record(**found | more)


def _as_given(value: Any) -> Any:
    return value


def expand(patterns: Sequence[str]) -> list[str]:
    """The patterns, with `@file` replaced by the lines of the file."""
    found: list[str] = []
    for pattern in patterns:
        if not pattern.startswith("@"):
            found.append(pattern)
            continue
        try:
            lines = Path(pattern[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{pattern}: cannot be read: {reason}") from error
        found += [line for line in lines if line.strip()]
    return found


def _labels(given: str | Mapping[str, str] | Sequence[str]) -> str | Mapping[str, str]:
    """By output the name of its labels; the empty output stands for the others."""
    if isinstance(given, str | Mapping):
        return given
    names: dict[str, str] = {}
    for text in given:
        output, _, name = text.rpartition("=")
        if not name or names.setdefault(output, name) != name:
            raise UsageError(f"--labels {text}: write NAME once, or OUTPUT=NAME once per output")
    return names


def _globs(given: Any) -> bool | str | list[str]:
    """A flag, or its globs."""
    return given if isinstance(given, bool | str) else expand(given)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "names": expand, "labels": _labels, "globs": _globs, "texts": list,
}  # fmt: skip

grad_options = flags(GradOptions)
kernel_options = flags(KernelOptions)

map_option = click.option(
    "--map", "mapped", multiple=True, metavar="INPUT=NAME",
    help="What the data call an input of the model; a glob, or A,B,C, are columns side by side.",
)  # fmt: skip


def data_option(use: str) -> Callable[[F], F]:
    """`--data`, whose help begins with its use."""
    return click.option(
        "--data", "data", required=True, metavar="DATA", type=PATH,
        help=f"{use}: .csv, .parquet, .jsonl, .npz, .safetensors, a folder of images or "
             "recordings by class, of .npy, or that datasets saved, or module:function.",
    )  # fmt: skip


portable_option = switch(
    "--portable", "Compute places of maxima by plain operators, for runtimes whose MaxPool has one "
    "output (onnxruntime's WebGPU build).")  # fmt: skip

format_option = click.option(
    "--format", "form", type=Choice(["table", "json"]), default="table", show_default=True,
    help="For people or for machines.",
)  # fmt: skip

table_format_option = click.option(
    "--format", "form", type=Choice(["table", "json", "csv", "markdown"]), default="table",
    show_default=True, help="For people, for machines, for a spreadsheet, for a page.",
)  # fmt: skip


plan_table_options = together(
    click.option("--memory", metavar="SIZE", callback=memory_size,
                 help="Show the largest batch that fits in this memory, as in 8GiB."),
    click.option("--by", type=Choice(["plan", "op", "phase", "tensor", "module"]),
                 default="plan", show_default=True,
                 help="Show what is held at the peak of each plan."),
    top_option("rows"),
)  # fmt: skip

write_options = together(
    file_flag("-o/--output", "FILE", "Where to write; - is stdout."),
    switch("--force", "Overwrite the output."),
    external_data_option,
    switch("--functions", "Write fused operators as local functions."),
    click.option("--barrier/--no-barrier", default=True, show_default=True,
                 help="Make onnxruntime compute again what the plan does, whatever its options."),
    portable_option,
)  # fmt: skip

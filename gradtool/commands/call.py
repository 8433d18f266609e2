"""Calls of a command: its own flags, and those of `gradtool`, before it or after it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
from click.core import ParameterSource

from gradtool.commands.option_rules import Said, refuse
from gradtool.commands.output import Reporter
from gradtool.errors import UsageError
from gradtool.text.words import suggest

WIDEST = 100  # columns of a page of help
OUTPUTS = ("output", "save_grads", "save_outputs", "profile", "trace", "html", "confusion")
REPLACING = "train"  # the command whose -o may be the model that it reads
EPILOG = "-v, -q, --color, --config, --no-config and --allow-code go here too: see gradtool --help."


@dataclass(frozen=True)
class Call:
    """A command line beside the options of its command.

    `given` are the parameters that are there, by name, whatever their value; `line` is all that
    follows `gradtool`, as it was written.  `outputs` are files to write by flag, of which the one
    called `replaces` may be the model that is read.
    """

    reporter: Reporter
    config: str | None = None
    no_config: bool = False
    allow_outside: bool = False
    allow_code: bool = False
    given: frozenset[str] = frozenset()
    line: tuple[str, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    replaces: str | None = None

    def require_apart(self, inputs: Iterable[str]) -> None:
        """Refuse to write over inputs.

        Raises:
            UsageError: an output is one of the inputs, however its path is written.
        """
        if any(map(os.path.exists, self.outputs.values())):
            from gradtool.io.sources import require_apart

            require_apart(self.outputs, inputs, replaced=self.replaces)


def everywhere(*, hidden: bool = False) -> list[click.Option]:
    """The flags that go before a command and after it."""
    return [
        click.Option(["--color"], type=Choice(["auto", "always", "never"]), default="auto",
                     show_default=True, help="When to colour the output.", hidden=hidden),
        click.Option(["--config"], metavar="FILE", type=click.Path(readable=False), hidden=hidden,
                     help="The configuration; default: gradtool.toml or pyproject.toml of this "
                          "folder, or above."),
        click.Option(["--no-config"], is_flag=True, help="Take no configuration.", hidden=hidden),
        click.Option(["--allow-outside"], is_flag=True, hidden=hidden,
                     help="Let the configuration name files outside its repository."),
        click.Option(["--allow-code"], is_flag=True, hidden=hidden,
                     help="Import the code that a configuration names, as in loss = "
                          "'pkg.mod:f'."),
        click.Option(["-v", "--verbose"], count=True, hidden=hidden,
                     help="Say more; a bug then shows its traceback."),
        click.Option(["-q", "--quiet"], is_flag=True, hidden=hidden,
                     help="Print results and errors only."),
    ]  # fmt: skip


class Choice(click.Choice[str]):
    """One of some names; the error of a wrong one suggests a near one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            message = error.message.rstrip(".") + suggest(str(value), self.choices)
            self.fail(message, param, ctx)


class Grouped(click.Option):
    """An option with its title on a page of help."""

    def __init__(self, *names: Any, group: str = "", **settings: Any) -> None:
        self.group = group
        super().__init__(*names, **settings)


class Globs(Grouped):
    """A flag that may carry a glob, `--flag=GLOB`: the next word alone is no value of it."""

    def __init__(self, *names: Any, **settings: Any) -> None:
        settings |= {"multiple": True, "callback": _all_or_some}
        super().__init__(*names, **settings)


def _all_or_some(
    _ctx: click.Context, _param: click.Parameter, given: Sequence[str]
) -> bool | list[str]:
    """Whether the flag is there, or its globs."""
    return bool(given) if "" in given or not given else list(given)


class Command(click.Command):
    """A command whose function takes a `Call`, then its options by name."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        settings["context_settings"] = {"max_content_width": WIDEST}
        super().__init__(*arguments, **{"epilog": EPILOG, **settings})
        self.params += everywhere(hidden=True)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, with an empty glob for each flag that may carry one and stands alone."""
        flags = {flag for p in self.params if isinstance(p, Globs) for flag in p.opts}
        end = args.index("--") if "--" in args else len(args)
        alone = [f"{each}=" if each in flags else each for each in args[:end]]
        return super().parse_args(ctx, [*alone, *args[end:]])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, many of them in groups."""
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        records = {p: record for p in options if (record := p.get_help_record(ctx))}
        for title, shown in grouped(list(records)).items():
            with formatter.section(title):
                formatter.write_dl([records[p] for p in shown])

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function, once its options are known to have an effect together."""
        assert self.callback is not None  # noqa: S101 - click calls it optional
        call = _call(ctx, self)
        options = {n: value for n, value in ctx.params.items() if n not in _EVERYWHERE}
        refuse(
            self.name or "",
            Said(options, call.given),
            {p.name or "": _flag(p) for p in self.params},
            getattr(self.callback, "records", ()),
        )
        read = (value for name, value in options.items() if name not in OUTPUTS)
        call.require_apart([text for value in read for text in _texts(value)])
        return ctx.invoke(self.callback, call, **options)


_EVERYWHERE = tuple(option.name or "" for option in everywhere())


def as_command(name: str) -> Callable[[Callable[..., Any]], Command]:
    """A function as the command of a name."""
    return click.command(name, cls=Command)


def _texts(value: Any) -> list[str]:
    """Texts of a parameter, each perhaps a path."""
    values = value if isinstance(value, list | tuple) else [value]
    return [text.removeprefix("@") for text in values if isinstance(text, str) and text != "-"]


def _call(ctx: click.Context, command: Command) -> Call:
    """The call with flags before and after the command; of two values the later one."""
    said: dict[str, Any] = {"verbose": 0}
    for place in filter(None, (ctx.parent, ctx)):
        for name in _EVERYWHERE:
            if name == "verbose":
                said[name] += place.params[name]
            elif name not in said or _is_given(place, name):
                said[name] = place.params[name]
    for first, second in (
        ("config", "no_config"),
        ("no_config", "allow_outside"),
        ("no_config", "allow_code"),
        ("quiet", "verbose"),
    ):
        if said[first] and said[second]:
            flags = (f"--{name.replace('_', '-')}" for name in (first, second))
            raise UsageError(" cannot be combined with ".join(flags))
    reporter = Reporter(said["color"], said["quiet"], said["verbose"])
    given = {p.name for p in ctx.command.params if p.name and _is_given(ctx, p.name)}
    given |= {name for name in ("config", "allow_code") if said[name] not in (None, False)}
    line = ctx.find_object(tuple) or ()
    outputs = {_flag(p): path for p in command.params if p.name in OUTPUTS
               for path in _texts(ctx.params[p.name])}  # fmt: skip
    replaces = "-o" if command.name == REPLACING else None
    names = ("config", "no_config", "allow_outside", "allow_code")
    return Call(
        reporter, **{n: said[n] for n in names}, given=frozenset(given), line=line,
        outputs=outputs, replaces=replaces,
    )  # fmt: skip


def _flag(parameter: click.Parameter) -> str:
    """Name of a parameter for people."""
    is_option = isinstance(parameter, click.Option)
    return parameter.opts[0] if is_option else parameter.human_readable_name.strip("[].")


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) not in (
        None,
        ParameterSource.DEFAULT,
        ParameterSource.DEFAULT_MAP,
    )


MANY = 20  # options that are read as one list

# By title the parameters of commands, in the order of a page, but those of records, whose fields
# name their title.
GROUPS = {
    "Data": "data mapped",
    "Sizes": "batch dims shapes values keep_cache",
    "Loss and gradients": "",
    "What learns": "head",
    "Optimizer": "optimizer",
    "Learning rate": "find_lr",
    "Text": "",
    "Evaluation": "evaluate result",
    "Plan": "policy keep drop checkpoints max_batch frontier points cost memory plan plans "
    "micro_batches explain",
    "Ranks and stages": "ranks stages shard shard_tables staleness sync_batchnorm deterministic "
    "timeout link latency",
    "Device": "threads",
    "What is done": "verify profile explain_kernels",
    "Form of the file": "split params_as_inputs functions barrier portable javascript opset "
    "external_data",
    "Results": "model report output force folder resume export lora_adapter save_grads "
    "save_outputs by top html svg trace form help",
}
PLACES = {name: title for title, names in GROUPS.items() for name in names.split()}


def grouped(shown: Sequence[click.Option]) -> dict[str, list[click.Option]]:
    """The options by the title that they stand under, as a page has them."""
    if len(shown) < MANY:
        return {"Options": list(shown)}
    found: dict[str, list[click.Option]] = {title: [] for title in GROUPS}
    for option in sorted(shown, key=lambda each: _place(each)[1]):
        found[_place(option)[0]].append(option)
    return {title: options for title, options in found.items() if options}


def _place(option: click.Option) -> tuple[str, int]:
    """The title of an option, and its place there: options of records come last but for --help."""
    places = list(PLACES)
    name = option.name or ""
    if title := getattr(option, "group", ""):
        return title, places.index("form")
    place = name if name in PLACES else "help"
    return PLACES[place], places.index(place)

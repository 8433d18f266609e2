"""The command line: parse, call one function, print.  Commands live in `gradtool/commands`."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from gradtool import __version__
from gradtool.blame import NodeFailed
from gradtool.errors import GradtoolError

COMMANDS = {
    "grad": "Build the training graph: forward, loss and gradients.",
    "mirror": "Drop cheap activations, compute them again in backward.",
    "recompute": "Compute segments of forward again in backward.",
    "run": "Run forward and backward once on a device.",
    "report": "Show the memory that a training step is planned to take.",
    "check": "Fail if a model here takes more memory than before.",
    "compare": "Show what moved between two models, plans or reports.",
    "init": "Write a configuration for check, and the first baseline.",
    "ops": "List gradient rules and kernels: all, or those of a model.",
    "doctor": "Show versions, devices and free memory.",
    "completion": "Print the completion script of a shell.",
    "schema": "Print the JSON Schema of an output, or list them.",
}


class Commands(click.Group):
    """Imports a command only when it is called; leaves every failure to `run`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"gradtool.commands.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from gradtool.text import suggest

            ctx.fail(f"no such command {args[0]!r}{suggest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, EOFError, OSError) as error:
            raise _Passed from error


class _Passed(Exception):
    """Carries what click would answer itself, with a blank line or a code of its own."""


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="When to colour the output.",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(readable=False),
    help="The configuration; default: gradtool.toml or pyproject.toml of this folder, or above.",
)
@click.option("--no-config", is_flag=True, help="Take no configuration.")
@click.option("-v", "--verbose", count=True, help="Say more; a bug then shows its traceback.")
@click.option("-q", "--quiet", is_flag=True, help="Print results and errors only.")
@click.version_option(__version__, prog_name="gradtool")
@click.pass_context
def group(ctx: click.Context, /, *, verbose: int, **options: Any) -> None:  # fmt: skip
    """The gradient compiler for ONNX files.

    \b
    gradtool grad model.onnx     writes model.grad.onnx, which any ONNX runtime runs
    gradtool report model.onnx   shows what a training step takes, and what holds it
    gradtool run model.onnx      runs one step, and measures it against the plan
    """  # noqa: D301 - \b keeps click from joining the lines
    if options["no_config"] and options["config"] is not None:
        ctx.fail("--config and --no-config do not go together")
    ctx.obj = {**options, "verbose": verbose}
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with the exit code that belongs to the outcome."""
    from gradtool.commands import threads

    threads.fix()
    gc.disable()  # for good: nor is garbage looked for on the way out
    _leave(run(arguments))


def _leave(code: int) -> NoReturn:
    """End the process as `sys.exit` does, but leave its memory to the system.

    To take a large graph apart, node by node, takes as long as a tenth of building it.

    Source: mypy ends like this (`mypy.util.hard_exit`); unlike it, what is registered to run at
    exit runs.
    """
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for threads
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public name
    os._exit(code)


def run(arguments: list[str] | None = None) -> int:
    """The exit code of one command; see `gradtool.errors` for the table."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        with _no_collector():
            outcome = group.main(given, prog_name="gradtool", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except _Passed as passed:
        return _explain(passed.__cause__ or passed, given)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a bug too is one line and a code
        return _explain(error, given)
    return outcome if isinstance(outcome, int) else 0


@contextmanager
def _no_collector() -> Iterator[None]:
    """Without Python's search for cyclic garbage.

    A graph is one web of cycles that lives as long as the command: searching it finds nothing,
    and takes as long as the work itself.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _explain(error: BaseException, given: list[str]) -> int:
    """Say what went wrong in one line, and return the exit code."""
    match error:
        case GradtoolError():
            if isinstance(error, NodeFailed):
                _trace(error, given)
            _say(str(error))
            return error.exit_code
        case KeyboardInterrupt() | click.exceptions.Abort():
            _say("interrupted")
            return 130
        case click.ClickException():
            context = getattr(error, "ctx", None)
            hint = f" (see {context.command_path} --help)" if context else ""
            _say(f"{error.format_message().rstrip('.')}{hint}")
            return 2
        case BrokenPipeError():
            _drop_stdout()
            return 0
        case OSError(errno=int()):
            _drop_stdout()
            where = f"{error.filename}: " if error.filename else ""
            _say(f"{where}{error.strerror or error}")
            return 2
        case MemoryError():
            _say("out of memory")
            return 4
    return _bug(error, given)


def _trace(error: BaseException | None, given: list[str]) -> None:
    """Show where an error comes from, to those who ask for more."""
    verbose = any(a == "--verbose" or (a.startswith("-v") and set(a[1:]) == {"v"}) for a in given)
    if verbose and error is not None:
        import traceback

        traceback.print_exception(error)


def _bug(error: BaseException, given: list[str]) -> int:
    _trace(error, given)
    detail = " ".join(str(error).split())[:200]
    _say(
        f"a bug in gradtool: {type(error).__name__}: {detail}; please report it with the command "
        "and the model (gradtool -v shows more)"
    )
    return 70


def _say(message: str) -> None:
    """One line on stderr; names from files cannot reach the terminal as control sequences."""
    from gradtool.reports.text import escape

    click.echo(f"gradtool: {escape(' '.join(message.split()))}", err=True)


def _drop_stdout() -> None:
    """Nobody takes what is left in the buffer: do not fail once more on the way out."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""The command line: parse, call one function, print.  Commands live in `gradtool/commands`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from gradtool import __version__
from gradtool.errors import GradtoolError

COMMANDS = {
    "grad": "Build the training graph: forward, loss and gradients.",
    "run": "Run forward and backward once on a device.",
    "report": "Show the memory that a training step is planned to take.",
    "ops": "List gradient rules and kernels: all, or those of a model.",
    "doctor": "Show versions, devices and free memory.",
    "completion": "Print the completion script of a shell.",
}


class Commands(click.Group):
    """Imports a command only when it is called; turns our errors into one line and a code."""

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
        from gradtool.text import suggest

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from gradtool.reports.text import escape

            ctx.fail(f"no such command {escape(args[0])!r}{suggest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto",
              show_default=True, help="When to colour the output.")  # fmt: skip
@click.option("-v", "--verbose", count=True, help="Say more; a bug then shows its traceback.")
@click.option("-q", "--quiet", is_flag=True, help="Print results and errors only.")
@click.version_option(__version__, prog_name="gradtool")
@click.pass_context
def group(ctx: click.Context, color: str, verbose: int, quiet: bool) -> None:  # noqa: FBT001
    """The gradient compiler for ONNX files.

    gradtool grad model.onnx     writes model.grad.onnx, which any ONNX runtime runs
    gradtool run model.onnx      runs one step and measures it against the plan
    """
    ctx.obj = {"color": color, "verbose": verbose, "quiet": quiet}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with the exit code that belongs to the outcome."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """The exit code of one command; see `gradtool.errors` for the table."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        outcome = group.main(given, prog_name="gradtool", standalone_mode=False)
    except GradtoolError as error:
        _say(str(error))
        return error.exit_code
    except click.exceptions.Abort:
        _say("interrupted")
        return 130
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context else ""
        _say(f"{error.format_message()}{hint}")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        _say("out of memory")
        return 4
    except Exception as error:  # noqa: BLE001 - the last resort: a bug is one line and a code
        return _bug(error, given)
    return outcome if isinstance(outcome, int) else 0


def _bug(error: Exception, given: list[str]) -> int:
    if any(a.startswith("-v") or a == "--verbose" for a in given):
        import traceback

        traceback.print_exception(error)
    detail = " ".join(str(error).split())[:200]
    _say(
        f"a bug in gradtool: {type(error).__name__}: {detail}; please report it with the command "
        "and the model (gradtool -v shows more)"
    )
    return 70


def _say(message: str) -> None:
    """One line on stderr; names from files cannot reach the terminal as control sequences."""
    from gradtool.reports.text import escape

    line = escape(" ".join(message.split()))
    print(f"gradtool: {line}", file=sys.stderr)  # noqa: T201 - the one place that prints errors


def context_value(ctx: click.Context, name: str) -> Any:
    """A flag given before the command: `color`, `verbose` or `quiet`."""
    return (ctx.obj or {}).get(name)

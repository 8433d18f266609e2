"""The commands by name, and the output and options of `gradtool` itself."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from gradtool import __version__
from gradtool.commands.call import everywhere

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "grad": "Build the training graph: forward, loss and gradients.",
    "train": "Train a model on data, and write it with its new weights.",
    "predict": "Compute the outputs of a model for all examples of data.",
    "mirror": "Drop cheap activations, compute them again in backward.",
    "recompute": "Compute segments of forward again in backward.",
    "run": "Run forward and backward once on a device.",
    "kit": "Write what trains a model with onnxruntime alone.",
    "kit merge": "Write the weights that a kit trained into its model.",
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
        module = cmd_name.replace(" ", "_")
        command: click.Command = import_module(f"gradtool.commands.{module}").command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = super().shell_complete(ctx, incomplete)
        return [item for item in found if " " not in item.value]  # shells complete by words

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from gradtool.text.words import suggest

            ctx.fail(f"no such command {args[0]!r}{suggest(args[0], COMMANDS)}")
        if " ".join(args[:2]) in COMMANDS:  # a command of two words
            args = [" ".join(args[:2]), *args[2:]]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, EOFError, OSError) as error:
            raise Passed from error


class Passed(Exception):
    """An answer in place of click's own, with a blank line or a code of its own."""


@click.group(
    cls=Commands,
    params=everywhere(),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="gradtool")
@click.pass_context
def group(ctx: click.Context, /, **_options: Any) -> None:  # fmt: skip
    """The gradient compiler for ONNX files.

    \b
    gradtool grad model.onnx     writes model.grad.onnx
    gradtool report model.onnx   shows what a step takes
    gradtool run model.onnx      runs a step, measures it
    """  # noqa: D301 - \b keeps click from joining the lines
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)

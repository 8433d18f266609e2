"""The command `gradtool completion`."""

from __future__ import annotations

import click

from gradtool.commands.call import Call, Choice, as_command

SHELLS = ("bash", "zsh", "fish")


@as_command("completion")
@click.argument("shell", type=Choice(SHELLS))
def command(_call: Call, /, *, shell: str) -> None:
    """Print the script that completes gradtool's commands and flags in SHELL.

    \b
    bash   gradtool completion bash >> ~/.bashrc
    zsh    gradtool completion zsh > ~/.zfunc/_gradtool    (a folder in $fpath)
    fish   gradtool completion fish > ~/.config/fish/completions/gradtool.fish
    """  # noqa: D301 - \b keeps click from joining the lines
    from click import shell_completion

    kind = shell_completion.get_completion_class(shell)
    assert kind is not None  # noqa: S101 - SHELLS are click's own
    script = kind(
        click.get_current_context().find_root().command, {}, "gradtool", "_GRADTOOL_COMPLETE"
    )
    click.echo(script.source_template % script.source_vars())

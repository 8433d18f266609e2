"""The configuration that `--config` and `--no-config` mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.config import Config


def configuration(ctx: click.Context) -> Config | None:
    """The configuration given, or the one found here; None where there is none.

    Raises:
        UsageError: it holds a mistake.
    """
    from gradtool import config

    chosen = ctx.obj or {}
    if chosen.get("no_config"):
        return None
    given = chosen.get("config")
    path = Path(given) if given is not None else config.find(Path.cwd())
    return None if path is None else config.load(_short(path))


def require(ctx: click.Context) -> Config:
    """The configuration.

    Raises:
        UsageError: there is none, it has no case, or it holds a mistake.
    """
    found = configuration(ctx)
    if found is None:
        raise UsageError(
            "no configuration: gradtool init writes one, with a case for each model here; or name "
            "a file with --config before the command"
        )
    if not found.cases:
        raise UsageError(f"{found.path}: has no [[case]]: gradtool init --force writes one")
    return found


def _short(path: Path) -> Path:
    """The path from here, where it lies below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path

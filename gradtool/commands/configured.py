"""The configuration that `--config` and `--no-config` mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.check.config import Config
    from gradtool.commands.call import Call


def configuration(call: Call) -> Config | None:
    """The configuration given, or the one found here; None where there is none.

    Code that it names is looked for in its folder too, with `--allow-code`.

    Raises:
        UsageError: it holds a mistake, or names files outside of its repository or code, and
            nobody allowed that.
    """
    from gradtool import plugins
    from gradtool.check import config

    if call.no_config:
        return None
    path = config.find(Path.cwd()) if call.config is None else Path(call.config)
    if path is None:
        return None
    read = config.load(_short(path))
    if not call.allow_outside:
        config.require(read, found=call.config is None)
    if call.allow_code:
        plugins.search_folders().append(str(read.folder.absolute()))
    else:
        config.require_no_code(read)
    return read


def require(call: Call) -> Config:
    """The configuration.

    Raises:
        UsageError: there is none, it has no case, or it holds a mistake.
    """
    found = configuration(call)
    if found is None:
        raise UsageError(
            "no configuration: gradtool init writes one, with a case for each model here; or name "
            "a file with --config"
        )
    if not found.cases:
        raise UsageError(f"{found.path}: has no [[case]]: gradtool init --force writes one")
    return found


def _short(path: Path) -> Path:
    """The path from here, where it lies below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path

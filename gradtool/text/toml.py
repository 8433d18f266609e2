"""TOML, read without trust."""

from __future__ import annotations

import os
import tomllib
from typing import Any

from gradtool.errors import UsageError


def parsed(text: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables in the text of a file.

    Raises:
        UsageError: the text is no TOML, or holds an unreadable value.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: is no TOML: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: is nested too deeply") from error
    except ValueError as error:  # by int(), of too many digits
        raise UsageError(f"{path}: is no TOML to be read: a number has too many digits") from error

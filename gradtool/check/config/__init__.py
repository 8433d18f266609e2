"""The configuration of a repository: `[tool.gradtool]` as typed cases."""

from __future__ import annotations

from gradtool.check.config.files import find
from gradtool.check.config.inside import require
from gradtool.check.config.settings import Config, load, require_no_code

__all__ = ["Config", "find", "load", "require", "require_no_code"]

"""Strings: nothing is computed with numbers."""

from __future__ import annotations

from gradtool.ops.costs import free

free(("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"))

"""Strings: nothing is computed with numbers."""

from gradtool.ops.costs import free

free(("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"))

"""Small words for messages."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(wrong: str, names: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` if a name comes close, else nothing; flags are not quoted."""
    found = meant(wrong, names)
    return f"; did you mean {found if found.startswith('-') else repr(found)}?" if found else ""


def meant(wrong: str, names: Iterable[str]) -> str:
    """The name meant by a misspelling, or by a name of another tool; empty if none comes close.

    It is the same but for case and signs, else an entry of `NAMES`, else the only name that begins
    like this, else the one with the most letters in common (`difflib`).
    """
    from difflib import get_close_matches

    from gradtool.text.synonyms import MEANT, plain

    known: dict[str, str] = {}
    for name in names:
        known.setdefault(plain(name), name)
    known.pop("", None)
    word = plain(wrong)
    if word in known:
        return known[word]
    synonyms = [known[plain(name)] for name in MEANT.get(word, ()) if plain(name) in known]
    longer = [name for key, name in known.items() if len(word) > 2 and key.startswith(word)]
    close = [known[key] for key in get_close_matches(word, known, n=1)]
    return (synonyms or (longer if len(longer) == 1 else close) or [""])[0]


def count(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def some(names: Iterable[str], most: int = 8) -> str:
    """The first names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more

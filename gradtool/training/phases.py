"""Phases of a training: parameters that are frozen until an epoch, and trained from then on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gradtool.errors import UsageError
from gradtool.passes.update_groups import begins
from gradtool.text.words import some, suggest
from gradtool.training.graphs import Graphs
from gradtool.workloads.grad_options import GradOptions

Unfrozen = Mapping[int, Sequence[str]]


@dataclass(frozen=True)
class Phase:
    """The graphs that train from an epoch on, counted from 0."""

    start: int
    graphs: Graphs


def unfrozen_by(texts: Sequence[str]) -> Unfrozen:
    """Globs by the epoch that they begin to be trained in, counted from 0, of `GLOB@EPOCH`.

    Raises:
        UsageError: one is none, or of the first epoch.
    """
    found: dict[int, list[str]] = {}
    for text in texts:
        glob, _, epoch = text.rpartition("@")
        if not glob or not epoch.isascii() or not epoch.isdigit() or int(epoch) < 2:
            raise UsageError(
                f"--unfreeze {text}: write GLOB@EPOCH, as in 'backbone.*@3'; epochs count from 1, "
                "and what is trained from the first one on needs no --unfreeze"
            )
        found.setdefault(int(epoch) - 1, []).append(glob)
    return {epoch: tuple(found[epoch]) for epoch in sorted(found)}


def at_last(options: GradOptions, unfrozen: Unfrozen) -> GradOptions:
    """The options of the last phase, in which everything is trained."""
    globs = [glob for each in unfrozen.values() for glob in each]
    is_chosen = options.wrt is not None or options.lora is not None
    wrt = (*(options.wrt or ()), *globs) if is_chosen and globs else options.wrt
    return replace(options, wrt=wrt, unfrozen=unfrozen or None)


@contextmanager
def naming(unfrozen: Unfrozen) -> Iterator[None]:
    """Let a refusal of a glob name the flag that it was given by."""
    try:
        yield
    except UsageError as error:
        for epoch, globs in unfrozen.items():
            for glob in globs:
                flag, text = f"--wrt {glob}:", str(error)
                if text.startswith(flag):
                    said = text.removeprefix(flag)
                    raise UsageError(f"--unfreeze {glob}@{epoch + 1}:{said}") from error
        raise


def require_all(unfrozen: Unfrozen, graphs: Graphs, epochs: int | None) -> None:
    """Refuse globs of no parameter that is trained at last, and epochs after the end.

    Raises:
        UsageError: naming the first.
    """
    names = sorted(graphs.learns)
    for epoch, globs in unfrozen.items():
        for glob in globs:
            text = f"--unfreeze {glob}@{epoch + 1}"
            if not any(begins(name, {1: (glob,)}) for name in names):
                near = suggest(glob, names) or f" (there are {some(names, 5)})"
                raise UsageError(f"{text}: no parameter that is trained has such a name{near}")
            if epochs is not None and epoch >= epochs:
                raise UsageError(f"{text}: training ends with epoch {epochs}")


def earlier(options: GradOptions, learns: frozenset[str]) -> list[tuple[int, GradOptions]]:
    """By first epoch, the options of the phases before the last one.

    Globs of groups that match nothing before the last phase are left out of them.
    """
    unfrozen = options.unfrozen or {}
    found = list[tuple[int, GradOptions]]()
    for start in (0, *unfrozen)[: len(unfrozen)]:
        frozen = sorted(name for name in learns if begins(name, unfrozen) > start)
        trained = learns.difference(frozen)
        scales = _scales(options)
        found.append((start, replace(
            options,
            no_grad=(*options.no_grad, *frozen),
            no_decay=tuple(g for g in options.no_decay if _matches_any(g, trained)),
            lr_scale=tuple(t for g, t in scales if _matches_any(g, trained)),
        )))  # fmt: skip
    return found


def _scales(options: GradOptions) -> list[tuple[str, str]]:
    """Globs of learning rates, and each as the flag has it."""
    given = options.lr_scale
    if isinstance(given, Mapping):
        return [(glob, f"{glob}={factor}") for glob, factor in given.items()]
    return [(text.rpartition("=")[0], text) for text in given]


def _matches_any(glob: str, names: frozenset[str]) -> bool:
    return any(begins(name, {1: (glob,)}) for name in names)

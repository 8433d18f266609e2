"""Resolution of the model if none is named, and of its options in the configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.check.cases import Case
    from gradtool.commands.call import Call
    from gradtool.commands.output import Reporter

LOSS = ("loss", "labels", "head_grads")  # one choice: which value the gradients are of


@dataclass(frozen=True)
class Sizes:
    """Flags for how a model is opened: sizes, --set, --keep-cache, and a new head with its seed."""

    dims: Sequence[str] = ()
    shapes: Sequence[str] = ()
    batch: int | None = None
    values: Sequence[str] = ()
    keep_cache: bool = False
    head: str | None = None
    seed: int = 0

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Sizes:
        """The flags among the options of a command."""
        names = ("dims", "shapes", "batch", "values", "head", "keep_cache")
        return cls(**{name: options[name] for name in names if name in options})


UNSIZED = Sizes()


@dataclass(frozen=True)
class Meant:
    """Models, and the flags that they are opened with."""

    sources: tuple[str, ...]
    sizes: Sizes
    options: dict[str, Any]

    @property
    def source(self) -> str:
        """The one model of a command that takes one."""
        return self.sources[0]


def meant(
    call: Call,
    named: Sequence[str | None],
    sizes: Sizes,
    options: Mapping[str, Any],
    *,
    sized: bool = True,
) -> Meant:
    """The models named, with the flags given; where none is, the one that is meant.

    That of a configuration has the options of its first case, and if `sized` the sizes, where no
    flag says otherwise: --dim and --set are about one name, --shape and --batch about all sizes.

    Raises:
        UsageError: there is no model here, or several.
    """
    sources = tuple(_plain(name) for name in named if name is not None)
    if sources:
        return Meant(sources, sizes, dict(options))
    cases = _cases(call)
    if not cases:
        found = _found(call.reporter)
        call.require_apart([found])
        return Meant((found,), sizes, dict(options))
    call.require_apart([str(cases[0].path)])
    taken = _sizes(cases[0], sizes, sized=sized)
    chosen = _options(call.given, cases[0], options)
    _say_case(call.reporter, cases, taken, chosen)
    merged = replace(
        sizes,
        dims=[*sizes.dims, *taken.dims],
        shapes=[*sizes.shapes, *taken.shapes],
        batch=sizes.batch or taken.batch,
        values=[*sizes.values, *taken.values],
        keep_cache=sizes.keep_cache or taken.keep_cache,
    )
    return Meant((str(cases[0].path),), merged, {**options, **chosen})


def _plain(name: str) -> str:
    """A path as outputs beside it are called: of a folder without a separator at its end."""
    if not Path(name).is_dir():
        return name
    plain = name.rstrip("/" if os.sep == "/" else "/\\")
    return plain if Path(plain).name not in ("", "..") else str(Path(name).resolve())


def remember(path: str) -> None:
    """Note the model of a `grad`, with its hash, for later commands in this folder."""
    from gradtool.io.contained import digest
    from gradtool.io.remembered import LAST

    if path == "-":
        return
    with suppress(OSError, UsageError):
        key = _key()
        if key is not None:
            note = {"model": path, "sha256": digest(Path(path))}
            LAST.put(key, json.dumps(note).encode())


def _key() -> str | None:
    """Key of the last run in this folder: its real path."""
    from gradtool.io.remembered import LAST

    return LAST.key(os.fsencode(Path.cwd().resolve()))


def _cases(call: Call) -> Sequence[Case]:
    """The cases of the configuration, all of one model; none where there is no configuration."""
    from gradtool.commands.configured import configuration

    found = configuration(call)
    if found is None:
        return ()
    paths = list(dict.fromkeys(str(case.path) for case in found.cases))
    if len(paths) > 1:
        raise UsageError(f"no MODEL given; the cases of {found.path} are of {', '.join(paths)}")
    if paths:
        call.reporter.say(f"model: {paths[0]} (of the cases in {found.path})")
    return found.cases


def _sizes(case: Case, given: Sizes, *, sized: bool) -> Sizes:
    """Sizes of a case, as flags, without those on the command line; values at least."""
    values = _flags(case.values, given.values)
    if not sized or given.shapes or given.batch is not None:
        return Sizes(values=values, keep_cache=case.keep_cache)
    return Sizes(
        _flags(case.dims, given.dims),
        [f"{name}={'x'.join(map(str, shape))}" for name, shape in case.shapes.items()],
        case.batch,
        values,
        case.keep_cache,
    )


def _flags(known: Mapping[str, object], given: Sequence[str]) -> list[str]:
    """`NAME=VALUE` of each name that no flag gives."""
    named = {text.rpartition("=")[0].strip() for text in given}
    return [f"{name}={value}" for name, value in known.items() if name not in named]


def _options(said: frozenset[str], case: Case, known: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a case, as flags, that the command line says nothing of."""
    given = said.union(LOSS) if said.intersection(LOSS) else said
    plans = known.get("kernels") == "numpy" and not said & {"kernels", "exact_conv"}
    return {**(case.kernels if plans else {})} | {
        name: value for name, value in case.differentiated.items() if name not in given
    }


def _say_case(
    reporter: Reporter, cases: Sequence[Case], sizes: Sizes, options: Mapping[str, Any]
) -> None:
    """Name the case of the sizes and options taken from it."""
    parts = [*sizes.dims, *sizes.shapes, *([f"batch {sizes.batch}"] if sizes.batch else [])]
    parts += [*sizes.values, *["keep-cache"] * sizes.keep_cache]
    parts += [name.replace("_", "-") for name in sorted(options)]
    if parts:
        more = f", the first of {len(cases)}" if len(cases) > 1 else ""
        reporter.say(f"case {cases[0].name!r}{more}: {', '.join(parts)}")


def _found(reporter: Reporter) -> str:
    """The model of the last `grad` here, or the only one."""
    last = _last()
    if last is not None:
        reporter.say(f"model: {last} (the last 'gradtool grad' here)")
        return last
    from gradtool.io.ours import is_ours

    found = [str(path) for path in sorted(Path().glob("*.onnx")) if not is_ours(path)]
    if len(found) == 1:
        reporter.say(f"model: {found[0]} (the only one here)")
        return found[0]
    if not found:
        raise UsageError("no MODEL given, and there is no .onnx file in this folder")
    raise UsageError(f"no MODEL given; here are {', '.join(found)}")


def _last() -> str | None:
    from gradtool.io.contained import digest
    from gradtool.io.remembered import LAST

    with suppress(OSError, UsageError):
        key = _key()
        known = None if key is None else LAST.get(key)
        if known is not None:
            note = json.loads(known)
            path = str(note["model"])
            return path if digest(Path(path)) == note["sha256"] else None
    return None

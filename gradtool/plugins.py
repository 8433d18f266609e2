"""Extensions from outside: entry points of installed packages, and functions named by path."""

from __future__ import annotations

import os
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gradtool.errors import GradtoolError, GradtoolWarning, UsageError, UserCodeError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from inspect import Parameter

RULES = "gradtool.rules"
KERNELS = "gradtool.kernels"
LOSSES = "gradtool.losses"


def entries(group: str) -> list[EntryPoint]:
    """The entry points of a group, by name."""
    found = _installed(tuple(sys.path)).select(group=group)
    return sorted(found, key=lambda e: (e.name, e.value))


@cache
def _installed(path: tuple[str, ...]) -> Any:  # noqa: ARG001 - where packages are looked for
    """The entry points of all packages on a path: a look at each takes milliseconds."""
    from importlib.metadata import entry_points

    return entry_points()


def load_plugins(
    group: str,
    registry: MutableMapping[Any, list[Any]],
    use: Callable[[str, Any], None] = lambda _name, _loaded: None,
) -> None:
    """Import the entry points of `group`, by name; `use` gets the name and what it stands for.

    What is registered while a plug-in loads stays; a plug-in that raises is named in a
    warning, and what it registered before is taken back.
    """
    from gradtool.text.names import escape

    for entry in entries(group):
        before = {key: list(versions) for key, versions in registry.items()}
        try:
            use(entry.name, entry.load())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - others' code may raise anything
            registry.clear()
            registry.update(before)
            owner = f" of {entry.dist.name}" if entry.dist is not None else ""
            told = f"plug-in {entry.name!r}{owner} ({group}) is skipped: {_reason(error)}"
            warnings.warn(escape(told), GradtoolWarning, stacklevel=2)


def _reason(error: BaseException) -> str:
    detail = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {detail}" if detail else type(error).__name__


class _Beside:
    """The finder of named modules in folders outside Python's path.

    What such a module imports is found in its folder as well, last of all.  Nobody else finds
    anything there: a `cupy.py` beside a model stays unread.
    """

    def __init__(self) -> None:
        self.folders: dict[str, str] = {}
        self.more: list[str] = []

    def find_spec(self, name: str, path: object = None, _target: object = None) -> Any:
        """The spec of a named module, or of one that such a module imports."""
        folder = None if path is not None else self.folders.get(name) or self._of_importer()
        if folder is None:
            return None
        spec = PathFinder.find_spec(name, [*sys.path, folder])
        if spec is not None:
            self.folders.setdefault(name, folder)
        return spec

    def _of_importer(self) -> str | None:
        frame = sys._getframe(2)  # noqa: SLF001 - nothing else tells who imports
        while frame.f_back and frame.f_globals.get("__name__", "").startswith("importlib"):
            frame = frame.f_back
        return self.folders.get(str(frame.f_globals.get("__name__")).partition(".")[0])

    def has(self, name: str) -> bool:
        """Whether there is a top-level module, perhaps in one of the folders."""
        if self not in sys.meta_path:
            sys.meta_path.insert(sys.meta_path.index(PathFinder), self)
        if name not in sys.modules:
            self.folders.pop(name, None)
            for folder in (os.getcwd(), *self.more):  # noqa: PTH109 - as it is in Python's path
                if PathFinder.find_spec(name, [folder]) is not None:
                    self.folders.setdefault(name, folder)
        return find_spec(name) is not None


_BESIDE = _Beside()


def search_folders() -> list[str]:
    """The folders searched for named modules after the current one; a list to add to."""
    return _BESIDE.more


def code_in(path: str) -> tuple[str, str] | None:
    """The module and the function that `pkg.mod:name` means; None if it cannot mean any."""
    module, _, name = path.partition(":")
    names = (*module.split("."), name)
    return (module, name) if all(map(str.isidentifier, names)) else None


def function_at(path: str) -> Callable[..., Any] | None:
    """The function that `pkg.mod:name` stands for; None if there is no such module.

    A module that Python's path does not have is looked for in the current folder.

    Raises:
        UsageError: the module cannot be imported, or has no such function.
    """
    return object_at(path, "function", callable)  # type: ignore[no-any-return]


def object_at(path: str, kind: str, fits: Callable[[Any], bool]) -> Any:
    """What `pkg.mod:name` stands for, of a `kind` that `fits`; None if there is no such module.

    Raises:
        UsageError: the module cannot be imported, or has nothing that fits by that name.
    """
    asked = code_in(path)
    if asked is None:
        return None
    module, name = asked
    try:
        if not _BESIDE.has(module.partition(".")[0]):
            return None
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        if f"{module}.".startswith(f"{error.name}."):
            return None
        raise _not_imported(module, error) from error
    except (Exception, SystemExit) as error:
        raise _not_imported(module, error) from error
    found = getattr(loaded, name, None)
    if not fits(found):
        where = f" ({loaded.__file__})" if getattr(loaded, "__file__", None) else ""
        raise UsageError(f"{module} has no {kind} {name!r}{where}")
    return found


def parameters_of(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    """A function's parameters by name; none of one in C that does not say."""
    from inspect import signature

    try:
        return signature(function).parameters
    except ValueError:
        return {}


# ------------------------------------------------------------------------- code of the user's


@contextmanager
def user_code(what: str, function: Callable[..., Any] | None = None) -> Iterator[None]:
    """Run a `function` of the user's, called `what` in messages.

    Raises:
        UserCodeError: in place of any exception: its type, its text, and file and line of the last
            frame of the user's, or of the function where none of its lines ran.
    """
    try:
        yield
    except UserCodeError:
        raise
    except (Exception, SystemExit) as error:
        at = _last_frame(error.__traceback__) or place_of(function)
        said = str(error) if isinstance(error, GradtoolError) else f"raised {_reason(error)}"
        raise UserCodeError(f"{what}: {said}{at}") from error


def require_call(what: str, function: Callable[..., Any], *given: Any, **named: Any) -> None:
    """Refuse a function that cannot be called with some arguments, before its first call.

    Raises:
        UserCodeError: its parameters are others.
    """
    from inspect import signature

    try:
        takes = signature(function)
    except (TypeError, ValueError):
        return  # one in C, which says nothing
    try:
        takes.bind(*given, **named)
    except TypeError as error:
        raise UserCodeError(
            f"{what}: takes {takes}, and is called with other arguments: {error}"
            f"{place_of(function)}"
        ) from error


def is_number(found: object) -> bool:
    """Whether what a function of the user's returned is one number, of Python or an array."""
    if isinstance(found, str | bytes | bool) or bool(getattr(found, "ndim", 0)):
        return False
    try:
        float(found)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def place_of(function: Callable[..., Any] | None) -> str:
    """` (file:line)` of a function, a class or a callable object; empty where nobody knows."""
    found: Any = function
    while isinstance(found, partial) or hasattr(found, "__wrapped__"):
        found = found.func if isinstance(found, partial) else found.__wrapped__
    own = vars(found).get("__init__") if isinstance(found, type) else None
    called = own or (found if hasattr(found, "__code__") else vars(type(found)).get("__call__"))
    code = getattr(called, "__code__", None)
    return "" if code is None else _at(code.co_filename, code.co_firstlineno)


def _last_frame(trace: TracebackType | None) -> str:
    """` (file:line)` of the last frame outside of gradtool, the library and packages."""
    found = ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(_elsewhere()):
            found = _at(name, trace.tb_lineno)
        trace = trace.tb_next
    return found


@cache
def _elsewhere() -> tuple[str, ...]:
    """Folders whose code is none of the user's; `<` begins the name of a frozen module."""
    paths = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return (f"{Path(__file__).parent}{os.sep}", *(f"{path}{os.sep}" for path in paths), "<frozen")


def _at(name: str, line: int) -> str:
    path = Path(name)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f" ({shown}:{line})"


def _not_imported(module: str, error: BaseException) -> UserCodeError:
    """The error of a module that raises, with its file and line."""
    at = _last_frame(error.__traceback__)
    return UserCodeError(f"{module} cannot be imported: {_reason(error)}{at}")

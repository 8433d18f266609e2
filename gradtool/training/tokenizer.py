"""Tokenizers and chat templates as files, and the process that they are read and run in."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np

from gradtool import child
from gradtool.errors import UsageError
from gradtool.exec.closing import Closing
from gradtool.io import lfs
from gradtool.io.stored import opened
from gradtool.text.extras import install

FILE, CONFIG, SPECIALS = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
TEMPLATE = "chat_template.jinja"
MOST_BYTES = 1 << 27  # of a tokenizer
_MOST_SMALL = 1 << 24  # bytes of the files beside it
_MOST_TEMPLATE = 1 << 20  # characters
_WAIT = 30.0  # seconds for an answer: processor time is limited below it
_OVERTIME = getattr(signal, "SIGXCPU", 0)
_MOST_LINE = 1 << 26  # bytes of an answer in words
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer, the special tokens by name, and the chat template beside it, if there is one.

    `context` is the number of tokens that its model takes, where that is said.
    """

    path: Path
    specials: Mapping[str, str]
    template: str | None
    context: int | None = None

    @classmethod
    def of(cls, given: str | Path | None, beside: Path | None) -> Self:
        """The tokenizer of a file or a folder, by default that in the folder of a model.

        Raises:
            UsageError: there is none, or a file beside it cannot be read.
        """
        if given is None and beside is None:
            raise UsageError("the model has no folder to look for a tokenizer: give --tokenizer")
        named = beside if given is None else Path(given)
        assert named is not None  # noqa: S101 - one of both is
        path = named / FILE if named.is_dir() else named
        if not path.is_file():
            where = f"--tokenizer {given}" if given else f"no {FILE} beside the model ({beside})"
            more = f": there is no {FILE} in it" if given and named.is_dir() else ""
            more = more or (": no such file" if given else ": give --tokenizer FILE or FOLDER")
            raise UsageError(f"{where}{more}")
        if lfs.is_pointer_file(path):
            raise UsageError(f"{path}: is a Git LFS pointer: run git lfs pull")
        folder = path.parent
        config = _object(folder / CONFIG)
        found = _specials(_object(folder / SPECIALS)) | _specials(config)
        limit = config.get("model_max_length")
        is_length = isinstance(limit, int) and 0 < limit < 1 << 30
        return cls(path, found, _template(folder, config), limit if is_length else None)

    @cached_property
    def digest(self) -> str:
        """A hash of all that decides the tokens of a text."""
        found = hashlib.sha256(json.dumps([dict(self.specials), self.template]).encode())
        with opened(self.path) as file:
            found.update(file.read(MOST_BYTES))
        return found.hexdigest()[:16]

    def require_template(self, source: str) -> None:
        """Refuse conversations where there is no template.

        Raises:
            UsageError: naming where one belongs.
        """
        if self.template is None:
            raise UsageError(
                f"{source}: holds messages, and {self.path.parent} has no chat template: put "
                f"{TEMPLATE} there, or chat_template into {CONFIG}"
            )


def _object(path: Path) -> dict[str, Any]:
    """The object in a JSON file that may be absent; raises UsageError if it is none."""
    if not path.exists():
        return {}
    with opened(path) as file:
        data = file.read(_MOST_SMALL + 1)
    try:
        found = json.loads(data) if len(data) <= _MOST_SMALL else None
    except (ValueError, RecursionError) as error:
        said = " ".join(str(error).split()) or "nested without end"
        raise UsageError(f"{path}: is no JSON: {said}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path}: is no JSON object of at most {_MOST_SMALL} bytes")
    return found


def _specials(config: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens of a configuration: each a text, or an object with one."""
    found = {}
    for name, given in config.items():
        text = given.get("content") if isinstance(given, dict) else given
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The chat template of a folder: a file of its own, or the default one of its configuration."""
    path = folder / TEMPLATE
    found = config.get("chat_template")
    if path.exists():
        with opened(path) as file:
            data = file.read(4 * _MOST_TEMPLATE + 1)
        try:
            found = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: is not UTF-8 text") from error
    elif isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    if found is None:
        return None
    if not isinstance(found, str) or len(found) > _MOST_TEMPLATE:
        raise UsageError(f"{folder}: its chat template is no text, or too long")
    return found


@dataclass
class _Watch:
    """A thread that ends a process which has not answered in time."""

    process: subprocess.Popen[bytes]
    deadline: float = field(default_factory=lambda: time.monotonic() + 4 * _WAIT)
    late: bool = False
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._look, name="gradtool-tokens", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            if time.monotonic() > self.deadline:
                self.late = True
                self.process.kill()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()


class TokenizerProcess(Closing):
    """A child that writes conversations and tokenizes texts, one after the other.

    Without `tokenizes` it writes, and `written` gives the text.
    """

    def __init__(self, files: TokenizerFiles, *, tokenizes: bool = True, chats: bool) -> None:
        """Start it; `chats` where there are conversations.

        Raises:
            UsageError: what it takes is not installed, or the files are none that it can use.
        """
        self._files, self._needs = files, "the chat template" if chats else str(files.path)
        for module, wanted in (("tokenizers", tokenizes), ("jinja2", chats)):
            if wanted and find_spec(module) is None:
                raise UsageError(f"texts need {module}: {install('text')}")
        if tokenizes and files.path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{files.path}: is too large: more than {MOST_BYTES} bytes")
        pipe, command = subprocess.PIPE, child.running("gradtool.training.tokenizing")
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL,
            env=child.environment(TOKENIZERS_PARALLELISM="false"),
        )  # fmt: skip
        self._watch = _Watch(self._process)
        begun = {
            "tokenizer": str(files.path.absolute()) if tokenizes else None,
            "template": files.template if chats else None,
            "specials": dict(files.specials),
            "end": files.specials.get("eos_token"),
            "names": list(files.specials.values()),
        }
        try:
            about = self._asked(begun)
        except UsageError as error:
            self.close()
            where = files.path if tokenizes else files.path.parent
            raise UsageError(f"{where}: {error}") from error
        self.size: int = about.get("size", 0)
        self.ids: Mapping[str, int | None] = about.get("ids", {})

    def tokens(self, request: Mapping[str, Any]) -> tuple[Array, Array]:
        """The tokens [T] of int32 of a request, and whether each counts [T], as bool.

        Raises:
            UsageError: it cannot be written or tokenized within the limits, and why.
        """
        count = self._asked(request)["tokens"]
        ids = np.frombuffer(self._read(4 * count), np.int32)
        return ids, np.frombuffer(self._read(count), np.bool_)

    def written(self, request: Mapping[str, Any]) -> tuple[str, list[tuple[int, int]] | None]:
        """The text of a conversation, and the characters of the assistant if it is asked for.

        Raises:
            UsageError: it cannot be written within the limits, and why.
        """
        found = self._asked(request)
        spans = found["spans"]
        return found["text"], None if spans is None else [(a, b) for a, b in spans]

    def _asked(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The first line of an answer."""
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        assert self._process.stdout is not None  # noqa: S101
        self._watch.deadline = time.monotonic() + _WAIT
        try:
            self._process.stdin.write(json.dumps(request).encode("ascii") + b"\n")
            self._process.stdin.flush()
        except OSError:
            self._ended()
        line = self._process.stdout.readline(_MOST_LINE)
        if not line.endswith(b"\n"):
            self._ended()
        self._watch.deadline = float("inf")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise UsageError(found["error"])
        return found

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        self._watch.deadline = time.monotonic() + _WAIT
        found = self._process.stdout.read(count)
        self._watch.deadline = float("inf")
        if len(found) < count:
            self._ended()
        return found

    def _ended(self) -> NoReturn:
        """Tell why the process has ended."""
        code = self._process.wait()
        is_late = self._watch.late or code == -_OVERTIME
        why = "takes longer than it may" if is_late else "takes more memory than it may, or crashes"
        raise UsageError(f"{self._needs} {why}")

    def close(self) -> None:
        """End the process."""
        self._watch.close()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what is left to write, to nobody
                if pipe is not None:
                    pipe.close()

"""Chat templates and tokenizers in a process of their own, which can do nothing else.

The template of a stranger's folder is a program: jinja2's sandbox keeps it from objects of Python,
and the limits of this process from memory, time, files and other processes.  The tokenizer reads a
stranger's file in native code, and runs here as well.

The first line on standard input says what is there; each line after it is a request, answered
before the next is read: a line of JSON, then the bytes of the tokens that it counts.

Source: `transformers.utils.chat_template_utils`, whose settings and functions templates are
written for; here none may tell the day or draw.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

MOST_CHARACTERS = 1 << 20  # of an example
LOADING = 1 << 32  # bytes of addresses while a tokenizer is read
WORKING = 1 << 29  # bytes of addresses beside what is there then
WRITING, READING = 3, 5  # seconds of processor time, for a template and for the tokens of a text
MOST_SAID = 300  # characters of an error
_OPEN, _CLOSE, _APART = "\ufdd0", "\ufdd1", "\ufdd2"  # noncharacters: no text has them
MARKS = (_OPEN, _CLOSE, _APART)
Spans = list[tuple[int, int]]


class Refusal(Exception):
    """What is wrong with a template or an example, in words."""


def environment() -> Any:
    """The sandbox of a template, with the functions that transformers gives it."""
    from jinja2 import debug, ext, nodes  # debug is imported by errors, when no file is read
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    del debug

    class Sandbox(ImmutableSandboxedEnvironment):
        """jinja2's, in which what is forbidden is an error also where it is only printed."""

        def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
            """Raise SecurityError."""
            kind = type(obj).__name__
            raise SecurityError(f"takes {attribute!r} of a {kind}, which is forbidden")

    class Generation(ext.Extension):
        """`{% generation %}`: encloses what the assistant has written."""

        tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

        def parse(self, parser: Any) -> Any:
            """The block, as a call that marks what is in it."""
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

        def _marked(self, caller: Callable[[], str]) -> str:
            return f"{_OPEN}{caller()}{_CLOSE}"

    made: Any = Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _raise
    del made.filters["random"], made.globals["lipsum"]
    return made


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None,  # noqa: FBT001, FBT002
    separators: tuple[str, str] | None = None, sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:  # fmt: skip
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> None:
    raise Refusal(f"the chat template refuses it: {message}")


class Chat:
    """A chat template with the special tokens that it is given, by name."""

    def __init__(self, template: str, specials: Mapping[str, str]) -> None:
        self._template = environment().from_string(template)
        self._specials = specials

    def written(
        self, messages: Sequence[Any], tools: Any, *, spans: bool
    ) -> tuple[str, Spans | None]:
        """The text of a conversation; of which characters the assistant is, if asked for.

        That is said by `{% generation %}` blocks; else a turn is from the end of what precedes
        it, with the prompt for it, to where the same conversation without what follows differs.

        Raises:
            Refusal: the template does not tell.
        """
        marked = self._rendered(messages, tools)
        text, found = _unmarked(marked)
        if not spans or found:
            return text, found if spans else None
        turns = [n for n, each in enumerate(messages) if each.get("role") == "assistant"]
        return text, [self._turn(messages, tools, turn, text) for turn in turns]

    def _turn(self, messages: Sequence[Any], tools: Any, turn: int, text: str) -> tuple[int, int]:
        """Where a turn of the assistant stands in the text of all."""
        before = self._rendered(messages[:turn], tools, prompt=True)
        if not text.startswith(before):
            raise Refusal(
                f"the chat template writes what precedes message {turn} otherwise once it is "
                "there: --mask-prompt takes a template that marks turns with {% generation %}, "
                "--no-mask-prompt learns all of a conversation"
            )
        start = len(before)
        if turn == len(messages) - 1:
            return start, len(text)
        alone = self._rendered(messages[: turn + 1], tools)
        end = _shared(text, alone)
        if end <= start:  # a turn that is written otherwise where it is the last
            inside, own = (
                self._end(each, tools, turn, of)
                for each, of in ((messages, text), (messages[: turn + 1], alone))
            )
            end = inside + _shared(text[inside:], alone[own:])
        return start, end

    def _end(self, messages: Sequence[Any], tools: Any, turn: int, text: str) -> int:
        """Where the content of a turn ends in a text: there another one would go on."""
        longer = {**messages[turn], "content": f"{messages[turn].get('content') or ''}{_APART}"}
        other = self._rendered([*messages[:turn], longer, *messages[turn + 1 :]], tools)
        return _shared(text, other)

    def _rendered(self, messages: Sequence[Any], tools: Any, *, prompt: bool = False) -> str:
        pieces, length = [], 0
        for piece in self._template.generate(
            **self._specials, messages=messages, tools=tools, documents=None,
            add_generation_prompt=prompt,
        ):  # fmt: skip
            length += len(piece)
            if length > MOST_CHARACTERS:
                raise Refusal(f"the chat template writes more than {MOST_CHARACTERS} characters")
            pieces.append(piece)
        return "".join(pieces)


def _shared(one: str, other: str) -> int:
    """The number of characters at the front that two texts share."""
    if other.startswith(one) or one.startswith(other):
        return min(len(one), len(other))
    return next(n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)


def _unmarked(text: str) -> tuple[str, Spans]:
    """A text without marks, and what was between them."""
    found: Spans = []
    pieces: list[str] = []
    start, length = 0, 0
    for n, piece in enumerate(text.replace(_CLOSE, _OPEN).split(_OPEN)):
        start, length = length, length + len(piece)
        pieces.append(piece)
        if n % 2:
            found.append((start, length))
    return "".join(pieces), found


# ----------------------------------------------------------------------------- tokenizers


class Tokens:
    """A tokenizer of a file, which cuts and pads nothing."""

    def __init__(self, path: str, end: str | None) -> None:
        from tokenizers import Tokenizer

        self._tokenizer: Any = Tokenizer.from_file(path)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._end = None if end is None else self._tokenizer.token_to_id(end)

    def described(self, names: Sequence[str]) -> dict[str, Any]:
        """The size of the vocabulary, and the numbers of some tokens."""
        found = {name: self._tokenizer.token_to_id(name) for name in names}
        return {"size": self._tokenizer.get_vocab_size(with_added_tokens=True), "ids": found}

    def of(
        self, text: str, spans: Spans | None, *, adds: bool, ends: bool
    ) -> tuple[list[int], bytes]:
        """The tokens of a text, and of each whether it ends in one of the spans; None: all.

        `adds` the tokens that the file puts around a text, `ends` with that of the end.
        """
        found = self._tokenizer.encode(text, add_special_tokens=adds)
        ids = list(found.ids)
        counts = bytearray(b"\x01" * len(ids) if spans is None else _covered(found.offsets, spans))
        if ends and self._end is not None and ids[-1:] != [self._end]:
            ids.append(self._end)
            counts.append(1)
        elif ends and ids[-1:] == [self._end]:
            counts[-1] = 1
        return ids, bytes(counts)


def _covered(offsets: Sequence[tuple[int, int]], spans: Spans) -> bytes:
    left = iter(sorted(spans))
    start, end = next(left, (0, 0))
    made = bytearray(len(offsets))
    for n, (first, last) in enumerate(offsets):
        while first >= end and (following := next(left, None)) is not None:
            start, end = following
        made[n] = start < last <= end
    return bytes(made)


# ---------------------------------------------------------------------------- the process

Answer = Callable[[Mapping[str, Any]], list[bytes]]


def answering(begun: Mapping[str, Any]) -> tuple[dict[str, Any], Answer]:
    """What is told of a tokenizer, and what answers requests with it and a template."""
    _memory(WORKING)
    _time(WRITING)
    with _of_template():
        chat = None if begun["template"] is None else Chat(begun["template"], begun["specials"])
    _memory(LOADING)
    _time(4 * READING)
    tokens = Tokens(begun["tokenizer"], begun["end"]) if begun["tokenizer"] else None

    def answer(given: Mapping[str, Any]) -> list[bytes]:
        text, spans = given.get("text", ""), given.get("spans")
        if "messages" in given:
            assert chat is not None  # noqa: S101 - refused before
            with _of_template():
                text, spans = chat.written(given["messages"], given["tools"], spans=given["masks"])
        if tokens is None:
            return [_line({"text": text, "spans": spans})]
        _time(READING)
        ids, counts = tokens.of(text, spans, adds=given["adds"], ends=given["ends"])
        return [_line({"tokens": len(ids)}), array("i", ids).tobytes(), counts]

    return {} if tokens is None else tokens.described(begun["names"]), answer


def _line(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found).encode("ascii") + b"\n"


def _write(parts: Sequence[bytes]) -> None:
    for each in parts:
        sys.stdout.buffer.write(each)
    sys.stdout.buffer.flush()


def _said(error: BaseException) -> str:
    """What an error says, in a line."""
    said = str(error) or type(error).__name__
    if isinstance(error, MemoryError):
        said = "takes more memory than it may"
    elif isinstance(error, RecursionError):
        said = "goes on without end (recursion)"
    elif not isinstance(error, Refusal):
        said = f"{type(error).__name__}: {said}"
    return " ".join(said.split())[:MOST_SAID]


@contextmanager
def _of_template() -> Iterator[None]:
    """Tell what a template fails with as its failure, with its line where jinja2 knows that."""
    try:
        yield
    except Refusal:
        raise
    except Exception as error:
        line = getattr(error, "lineno", None)
        is_known = type(error).__module__.startswith("jinja2")
        raise Refusal(
            f"the chat template{f', line {line}' if line else ''}: "
            f"{error if is_known else _said(error)}"
        ) from error


def _limit(name: str, soft: int, *, final: bool = False) -> None:
    """Set a limit of this process, for good if `final`, where its system has such."""
    with suppress(ImportError, AttributeError, ValueError, OSError):
        import resource

        kind = getattr(resource, name)
        most = resource.getrlimit(kind)[1]
        soft = soft if most == resource.RLIM_INFINITY else min(soft, most)
        resource.setrlimit(kind, (soft, soft if final else most))


def _time(seconds: int) -> None:
    """Take so many seconds of processor time more, at most."""
    _limit("RLIMIT_CPU", int(sum(os.times()[:2])) + 1 + seconds)


def _memory(more: int, *, final: bool = False) -> None:
    """Take so many bytes of addresses more, at most."""
    with suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - quick to import
            pages = int(file.read().split()[0])
        _limit("RLIMIT_AS", pages * os.sysconf("SC_PAGE_SIZE") + more, final=final)


def _confine() -> None:
    """Open no files, start no processes, and see no variables, from here on."""
    os.environ.clear()
    _memory(WORKING, final=True)
    _limit("RLIMIT_FSIZE", 0, final=True)
    _limit("RLIMIT_NPROC", 0, final=True)
    _limit("RLIMIT_NOFILE", 3, final=True)


def main() -> None:
    """Answer requests until there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides when to end
    begun = json.loads(sys.stdin.buffer.readline())
    _limit("RLIMIT_CORE", 0, final=True)
    try:
        about, answer = answering(begun)
    except BaseException as error:  # noqa: BLE001 - what native code panics with, too
        _write([_line({"error": _said(error)})])
        return
    _write([_line(about)])
    _confine()
    for line in sys.stdin.buffer:
        _time(WRITING)
        try:
            parts = answer(json.loads(line))
        except BaseException as error:  # noqa: BLE001 - what native code panics with, too
            parts = [_line({"error": _said(error)})]
        _write(parts)


if __name__ == "__main__":
    main()

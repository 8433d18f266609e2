"""Folders of decoders and texts in which one thing is wrong, and what a training says of it.

A case changes a folder `tiny` that is right, or `chat.jsonl` beside it; `says` is part of its line.
`more` are further words of the command line.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from texts import WORDS, chat, write_lines, write_tokenizer

SHORT = chat("what is the color ?", "red .")
Change = Callable[[Path], object]


@dataclass(frozen=True)
class Wrong:
    """A mistake by name."""

    name: str
    says: str
    change: Change
    more: tuple[str, ...] = ()
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


def config(**sections: object) -> Change:
    """A configuration with sections of its model replaced."""

    def change(folder: Path) -> None:
        path = folder / "genai_config.json"
        found = json.loads(path.read_text())
        found["model"] |= sections
        path.write_text(json.dumps(found))

    return change


def named(filename: object) -> Change:
    """A configuration that names another file as the decoder."""
    return config(decoder={"filename": filename})


def wrote(name: str, content: bytes | str) -> Change:
    """A file of the folder, or beside it, with another content."""
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def lines(*rows: object) -> Change:
    """Other conversations."""
    return lambda folder: write_lines(folder.parent / "chat.jsonl", rows)


def template(text: str | None) -> Change:
    """Another chat template."""
    return lambda folder: write_tokenizer(folder, text)


def gone(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def linked(folder: Path) -> None:
    """The decoder is a link that leads out of the folder."""
    target = folder / "model.onnx"
    target.rename(folder.parent / "elsewhere.onnx")
    target.symlink_to(folder.parent / "elsewhere.onnx")


def data_linked(folder: Path) -> None:
    """The file of the weights is a link that leads out of the folder."""
    target = folder / "model.onnx.data"
    target.rename(folder.parent / "elsewhere.data")
    target.symlink_to(folder.parent / "elsewhere.data")


def cut(name: str, left: float) -> Change:
    """A file without its end."""

    def change(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * left)])

    return change


FOLDERS = [
    Wrong("no folder", "no such file", lambda f: f.rename(f.parent / "other")),
    Wrong("no configuration", "genai_config.json", gone("genai_config.json")),
    Wrong("a configuration that is torn", "is no JSON", cut("genai_config.json", 0.5)),
    Wrong("a configuration of bytes", "is no JSON", wrote("genai_config.json", b"\xff\x00")),
    Wrong("a file outside", "no plain path inside the folder", named("../elsewhere.onnx")),
    Wrong("a file by its whole path", "no plain path inside", named("/etc/passwd")),
    Wrong("a file of another drive", "no plain path inside", named("C:\\model.onnx")),
    Wrong("a link outside", "leads out of the folder", linked),
    Wrong("a file that is not there", "none.onnx: no such file", named("none.onnx")),
    Wrong("a file without a name", "names no file", named(3)),
    Wrong("no model", "no such file", gone("model.onnx")),
    Wrong("a model that is torn", "is not an ONNX model", cut("model.onnx", 0.7)),
    Wrong("no weights", "its data file", gone("model.onnx.data")),
    Wrong("weights that are torn", "model.onnx.data", cut("model.onnx.data", 0.3)),
    Wrong("weights outside", "model.onnx.data", data_linked),
    Wrong("pictures", "vision", config(vision={"filename": "vision.onnx"})),
    Wrong("speech", "speech", config(speech={"filename": "speech.onnx"})),
    Wrong("an encoder", "encoder", config(encoder={"filename": "encoder.onnx"})),
    Wrong("a pipeline", "several files", config(decoder={"pipeline": [{}]})),
]
TOKENIZERS = [
    Wrong("no tokenizer", "no tokenizer.json beside the model", gone("tokenizer.json")),
    Wrong("a tokenizer that is torn", "tokenizer.json", cut("tokenizer.json", 0.5)),
    Wrong("a tokenizer of nothing", "tokenizer.json", wrote("tokenizer.json", "")),
    Wrong("a tokenizer of bytes", "tokenizer.json", wrote("tokenizer.json", b"\x00\xff" * 99)),
    Wrong(
        "a tokenizer of another model", "is beyond the vocabulary of the model",
        lambda f: write_tokenizer(f, words=[*(f"w{n}" for n in range(60)), *WORDS]),
    ),
    Wrong("another folder", "no such file", lambda _: None, ("--tokenizer", "none")),
]  # fmt: skip
TEMPLATES = [
    Wrong("no template", "has no chat template", template(None)),
    Wrong("syntax", "the chat template, line 1", template("{% for m in %}")),
    Wrong("an unknown name", "the chat template", template("{{ nobody.knows }}")),
    Wrong("a loop without end", "takes longer",
          template("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
                   "{% endfor %}")),
    Wrong("a flood", "the chat template",
          template("{% for a in range(99999) %}{{ 'red ' * 9999 }}{% endfor %}")),
    Wrong("one that refuses", "the chat template refuses it: never",
          template("{{ raise_exception('never') }}")),
    Wrong("objects of Python", "the chat template",
          template("{{ ''.__class__.__mro__ }}")),
    Wrong("one that writes nothing", "no token", template("{# nothing #}")),
    Wrong("one of bytes", "is not UTF-8 text", wrote("chat_template.jinja", b"\xff\xfe")),
]  # fmt: skip
TEXTS = [
    Wrong("no file", "chat.jsonl", lambda f: (f.parent / "chat.jsonl").unlink()),
    Wrong("nothing", "chat.jsonl: is empty", lines()),
    Wrong("blank lines", "chat.jsonl: is empty", lines("", "  ", "")),
    Wrong("bytes", "chat.jsonl", wrote("../chat.jsonl", bytes(range(256)) * 9)),
    Wrong("a torn letter", "line 2 is not UTF-8",
          wrote("../chat.jsonl", json.dumps(SHORT).encode() + b'\n{"messages": "\xc3\n')),
    Wrong("a list", "chat.jsonl", wrote("../chat.jsonl", json.dumps([SHORT, SHORT]))),
    Wrong("no role", "line 2: message 0 has no role",
          lines(SHORT, {"messages": [{"content": "red"}]})),
    Wrong("no content", "line 2: message 0 has no content",
          lines(SHORT, {"messages": [{"role": "user"}]})),
    Wrong("no messages", "line 2: 'messages' is no list of messages",
          lines(SHORT, {"messages": []})),
    Wrong("another form", "line 2 has no 'messages'", lines(SHORT, {"text": "red"})),
    Wrong("nobody answers", "line 2: no token is to be learned",
          lines(SHORT, {"messages": [{"role": "user", "content": "red"}]})),
    Wrong("a long one", "more than 8", lines(SHORT, SHORT),
          ("--max-length", "8", "--too-long", "refuse")),
    Wrong("all long", "all texts have more than 8 tokens", lines(SHORT, SHORT),
          ("--max-length", "8", "--too-long", "skip")),
    Wrong("longer than the model", "the model takes 64 tokens at most", lines(SHORT),
          ("--max-length", "65")),
    Wrong("too few", "are less than a batch of 9", lines(SHORT), ("--batch", "9")),
    Wrong("a folder", "chat.jsonl",
          lambda f: ((f.parent / "chat.jsonl").unlink(), (f.parent / "chat.jsonl").mkdir())),
]  # fmt: skip
KINDS = {"folder": FOLDERS, "tokenizer": TOKENIZERS, "template": TEMPLATES, "texts": TEXTS}
CASES = [replace(each, kind=kind) for kind, cases in KINDS.items() for each in cases]

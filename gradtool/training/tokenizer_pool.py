"""Several tokenizers at once, whose answers come in the order of the requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from typing import Any, Self

from gradtool.errors import UsageError
from gradtool.training.token_rows import Array
from gradtool.training.tokenizer import TokenizerFiles, TokenizerProcess

PIECE = 1 << 18  # characters that a process is given at once
Asked = tuple[int, Mapping[str, Any], Mapping[str, Any]]  # a line, the request, what else is in it
Answered = tuple[int, Array, Array, Mapping[str, Any]]


class TokenizerPool:
    """Up to `most` processes with the same tokenizer: as many as there are pieces to work on."""

    def __init__(self, files: TokenizerFiles, most: int, *, chats: bool) -> None:
        """Start the first.

        Raises:
            UsageError: as that of a process.
        """
        self._files, self._chats, self._most = files, chats, most
        self._processes: list[tuple[TokenizerProcess, ThreadPoolExecutor]] = []
        self._open = ExitStack()
        self.first = self._started()

    def _started(self) -> TokenizerProcess:
        process = TokenizerProcess(self._files, chats=self._chats)
        thread = self._open.enter_context(ThreadPoolExecutor(1, "gradtool-tokens"))
        self._open.callback(process.close)  # before the thread, which waits for it
        self._processes.append((process, thread))
        return process

    def answered(self, source: str, asked: Iterable[Asked]) -> Iterator[Answered]:
        """The tokens of texts, and which count, with the line and what else is in it.

        Raises:
            UsageError: one cannot be tokenized; its line is named.
        """
        left, waiting = iter(asked), deque[Future[list[Answered]]]()
        for turn in count():
            piece = _piece(left)
            if piece:
                if turn == len(self._processes) < self._most:
                    self._started()
                process, thread = self._processes[turn % len(self._processes)]
                waiting.append(thread.submit(_tokens, process, source, piece))
            while waiting and (not piece or len(waiting) > len(self._processes)):
                yield from waiting.popleft().result()
            if not piece:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


def _piece(left: Iterator[Asked]) -> list[Asked]:
    """The next texts, of so many characters together; none at the end."""
    found: list[Asked] = []
    size = 0
    while size < PIECE and (each := next(left, None)) is not None:
        found.append(each)
        texts = [turn.get("content") or "" for turn in each[1].get("messages", ())]
        size += 64 + len(each[1].get("text", "")) + sum(map(len, texts))
    return found


def _tokens(process: TokenizerProcess, source: str, piece: Iterable[Asked]) -> list[Answered]:
    found: list[Answered] = []
    for line, request, rest in piece:
        try:
            ids, counts = process.tokens(request)
        except UsageError as error:
            raise UsageError(f"{source}: line {line}: {error}") from error
        found.append((line, ids, counts, rest))
    return found

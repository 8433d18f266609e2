"""The next items of an iterator made in a thread while the one before is worked on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue
from types import TracebackType
from typing import Generic, Self, TypeVar, cast

T = TypeVar("T")
AHEAD = 2  # items that are ready at most


class Prefetched(Generic[T]):
    """An iterator over what another one makes in a thread; what that raises is raised here."""

    def __init__(self, items: Iterator[T], ahead: int = AHEAD) -> None:
        self._items = items
        self._ready: Queue[tuple[T | None, BaseException | None]] = Queue(ahead)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="gradtool-data", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        while True:
            item, error = self._ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield cast("T", item)

    def _fill(self) -> None:
        try:
            for item in self._items:
                self._put((item, None))
                if self._ended.is_set():
                    return
            self._put((None, StopIteration()))
        except BaseException as error:  # noqa: BLE001 - it is raised where the items are taken
            self._put((None, error))

    def _put(self, entry: tuple[T | None, BaseException | None]) -> None:
        if not self._ended.is_set():
            self._ready.put(entry)

    def close(self) -> None:
        """Stop the thread, and wait for it."""
        self._ended.set()
        while self._thread.is_alive():
            while not self._ready.empty():
                self._ready.get_nowait()
            self._thread.join(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

"""The next item of an iterator made in a thread while the one before is worked on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue
from typing import Generic, TypeVar, cast

from gradtool.exec.closing import Closing

T = TypeVar("T")
AHEAD = 1  # items that are ready, or being made: each takes memory beside the plan


class Prefetched(Closing, Generic[T]):
    """An iterator over what another one makes in a thread; what that raises is raised here."""

    def __init__(self, items: Iterator[T], ahead: int = AHEAD) -> None:
        self._items = items
        self._ready: Queue[tuple[T | None, BaseException | None]] = Queue()
        self._room = threading.Semaphore(ahead)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="gradtool-data", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        while True:
            item, error = self._ready.get()
            self._room.release()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield cast("T", item)

    def _fill(self) -> None:
        """Make items where there is room, until there are none or nobody wants more."""
        try:
            while self._room.acquire() and not self._ended.is_set():
                item = next(self._items)
                self._ready.put((item, None))
                del item
        except BaseException as error:  # noqa: BLE001 - it is raised where the items are taken
            self._ready.put((None, error))

    def close(self) -> None:
        """Stop the thread, and wait for it."""
        self._ended.set()
        self._room.release()
        self._thread.join()

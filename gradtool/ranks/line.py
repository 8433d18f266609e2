"""Ranks in a line, each with a stage of a model: the messages from one to the next."""

from __future__ import annotations

import numpy as np

from gradtool.ranks.group import Array, Group, Pending


class Line:
    """The stages of a group in order; this rank is one of them."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._leaving: dict[tuple[int, int], Pending] = {}

    def send(self, array: Array, to: int, slot: int) -> None:
        """Begin to send an array `to` stages further; not touched until it arrived.

        Earlier messages through the same slot have arrived then.

        Raises:
            Lost: that stage has not taken it in time.
        """
        self.sent(to, slot)
        flat = array.reshape(-1).view(np.uint8)
        self._leaving[to, slot] = self.group.send(flat, self.group.rank + to, slot)

    def sent(self, to: int, slot: int) -> None:
        """Wait until the message in a slot has arrived."""
        pending = self._leaving.pop((to, slot), None)
        if pending is not None:
            self.group.wait(pending)

    def all_sent(self) -> None:
        """Wait until everything has arrived."""
        for to, slot in list(self._leaving):
            self.sent(to, slot)

    def receive(self, array: Array, of: int, slot: int) -> None:
        """Wait for an array from the stage `of` further. Raises Lost if nothing came in time."""
        flat = array.reshape(-1).view(np.uint8)
        self.group.receive(flat, self.group.rank + of, slot)

    def bring_forward(self) -> None:
        """Test pending messages, which makes the engine progress them."""
        for pending in self._leaving.values():
            pending.test()

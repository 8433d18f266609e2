"""Sends and receives between stages; without a line of stages, nothing goes anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.ops.kernels import kernel
from gradtool.ops.ranks.members import line
from gradtool.ops.shared.types import Array, Arrays


@kernel("ai.gradtool::StageSend", may_inplace=(0,), strided=True)
def stage_send(
    xp: Any, x: Array, before: Array | None = None, *, out: Arrays, to: int, slot: int
) -> None:
    """Send a copy of `x`, or `x` itself if the output is its alias."""
    (mail,) = out
    if mail.__array_interface__["data"] != x.__array_interface__["data"]:
        xp.copyto(mail, x)
    stages = line()
    if stages is not None:
        stages.send(mail, to, slot)


@kernel("ai.gradtool::StageReceive")
def stage_receive(
    xp: Any, *, out: Arrays, shape: Sequence[int], dtype: int, of: int, slot: int
) -> None:
    """The value sent by the stage `of` further, or zeros without a line of stages."""
    stages = line()
    if stages is None:
        out[0][...] = 0
    else:
        stages.receive(out[0], of, slot)


@kernel("ai.gradtool::StageGive")
def stage_give(xp: Any, x: Array, *, out: Arrays, to: int, slot: int) -> None:
    """Send values that stay as they are, and wait for their arrival."""
    stages = line()
    if stages is not None:
        stages.send(x, to, slot)
        stages.sent(to, slot)
    out[0][...] = True


@kernel("ai.gradtool::StageSent", strided=True)
def stage_sent(xp: Any, *mails: Array, out: Arrays) -> None:
    """Wait until all has arrived."""
    stages = line()
    if stages is not None:
        stages.all_sent()
    out[0][...] = True

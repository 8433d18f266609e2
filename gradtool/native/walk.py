"""A schedule changed run by run: native/kernels/line.h, walk.c."""

from __future__ import annotations

from gradtool.native.call import Layout, Signature

LINE = Layout(
    "line",
    "reads_at reads writes_at writes fleeting_at fleeting donates_at donates apart_at apart"
    " targets costs rank links staying beside is_result is_random"
    " maker bytes stays is_read may_drop drops made"
    " now entries entries_before"
    " place alive saved place_before alive_before saved_before"
    " node next heads tails log dirty dead marks weights over above passed idle seeming",
    "steps storages room fixed total",
)
STAND = (
    *("count", "extra", "used", "changes", "left", "free", "logged", "dirty", "dead", "begun"),
    *("deep", "stamp", "same", "count_before", "extra_before", "used_before", "idle", "answer"),
)
SAID = ("count", "extra", "left", "answer", "idle")  # the words read by Python
ENTRY, ITEM, CHANGE = 2, 7, 4  # words of each
LOAD = Signature("walk_load", "line", "")
FIT = Signature("walk_fit", "line", "budget worth patience trials ends")
TRIM = Signature("walk_trim", "line", "budget")
RERUN_IDLE = Signature("walk_rerun_idle", "line", "root room")
IDLE = Signature("walk_idle", "line", "number count")
LEAVE_OUT = Signature("walk_leave_out", "line", "number count")

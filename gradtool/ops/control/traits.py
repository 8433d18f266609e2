"""Traits of the operators of the control family."""

from __future__ import annotations

from gradtool.ops.traits import traits

traits("If Loop Scan", recompute="never")

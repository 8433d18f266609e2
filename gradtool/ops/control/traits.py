"""Traits of the operators of the control family."""

from gradtool.ops.traits import traits

traits("If Loop Scan", recompute="never")

"""Composites: calls of `ai.gradtool` functions, each with a body in standard operators.

A composite is one node inside the IR, one step of a program and one kernel call.  Saving replaces
it by its body (`inline`), and leaves metadata from which loading puts it back (`outline`).
"""

"""Workloads that are planned and never written: their programs were made by hand."""

from __future__ import annotations

import dataclasses
from functools import cache

import onnx_ir as ir
from training_programs import chain

from gradtool.workloads.workload import Workload


def workload_of(program):
    """A workload whose model has no nodes; all those of the program are steps."""
    work = Workload(ir.Model(ir.Graph([], [], nodes=[]), ir_version=10), program, {})
    work.__dict__["nodes"] = program
    return work


@cache
def layers(count=3):
    """A chain of layers and their gradients whose steps cost 5, 6 or 7; always the same one."""
    before = chain(count)
    priced = [dataclasses.replace(s, flops=5 + i % 3) for i, s in enumerate(before.steps)]
    return workload_of(dataclasses.replace(before, steps=tuple(priced)))

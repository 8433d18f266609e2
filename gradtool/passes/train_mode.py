"""Operators that differ between training and inference, and those that draw random numbers.

A file says which of the two it means, and most say inference.  `--train-mode` asks for training:
BatchNormalization by the statistics of the batch, Dropout that drops.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.randomness import may_draw
from gradtool.passes.counted_dropout import count_draws
from gradtool.passes.exporters import REMEDY, folded

NOTHING = (
    "--train-mode: the model has no BatchNormalization and no Dropout "
    "(exporters leave Dropout out of models for inference, and fold BatchNormalization into the "
    f"layer before: {REMEDY})"
)
NO_NORM = (
    "--train-mode: the model has Dropout and no BatchNormalization (if there was one, the exporter "
    f"folded it into the layer before: {REMEDY})"
)
BY_THE_RUNTIME = (
    "Dropout in a branch or a loop: drawn by the runtime's own generator, so that neither a seed "
    "nor a step decides it"
)


def train(model: ir.Model, op: Builder) -> list[str]:
    """Turn BatchNormalization and Dropout to training, in place. Returns warnings."""
    norms = [n for n in walk.nodes(model.graph) if _is(n, "BatchNormalization")]
    drops = [n for n in walk.nodes(model.graph) if _is(n, "Dropout")]
    for node in norms:
        _by_the_batch(node, op)
    inner = [n for n in drops if n.graph is not model.graph]
    for node in inner:
        _that_drops(node, op)
    count_draws(op, [n for n in drops if n.graph is model.graph])
    if not norms and not drops:
        return [NOTHING]
    said = []
    convolves = any(n.op_type in ("Conv", "ConvTranspose") for n in model.graph)
    if not norms and convolves and not folded(model.graph):
        said.append(NO_NORM)
    if inner:
        said.append(f"{len(inner)} {BY_THE_RUNTIME}")
    still = sum(n.graph is not model.graph for n in norms)
    if still:
        said.append(f"{still} BatchNormalization in a branch or a loop: its statistics do not move")
    return said


def _is(node: ir.Node, op_type: str) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type == op_type


def _by_the_batch(node: ir.Node, op: Builder) -> None:
    """With outputs for the new running mean and variance, which the file had no use for."""
    node.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
    node.resize_outputs(3)
    for old, new in zip(node.inputs[3:5], node.outputs[1:], strict=True):
        new.name = new.name or op.names.fresh(f"{old.name if old else node.name}_next")
    op.infer(node)


def _that_drops(node: ir.Node, op: Builder) -> None:
    """With the ratio that the file gives."""
    if len(node.inputs) < 3:
        node.resize_inputs(3)
    node.replace_input_with(2, op.constant(np.array(True)))


def in_inference(model: ir.Model) -> list[str]:
    """A warning where running statistics are taken as constants."""
    count = sum(
        _is(n, "BatchNormalization") and not n.attributes.get_int("training_mode", 0)
        for n in model.graph
    )
    said = "BatchNormalization in inference mode: running statistics are constants (--train-mode)"
    return [f"{count} {said}"] if count else []


def at_random(model: ir.Model) -> list[str]:
    """A warning that names the operators whose results differ from run to run."""
    counts = Counter(n.op_type for n in walk.nodes(model.graph) if _draws(n))
    if not counts:
        return []
    listed = ", ".join(f"{count} {op}" for op, count in sorted(counts.items()))
    return [f"drawn at random, every run differs (fix it by the attribute seed): {listed}"]


def _draws(node: ir.Node) -> bool:
    return "seed" not in node.attributes and may_draw(node)

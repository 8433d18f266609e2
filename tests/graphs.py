"""Small graphs written as ONNX text, and what tests do with them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

import gradtool as gt
from gradtool import shapes
from gradtool.ops.composites.calls import inline
from gradtool.shapes.inference import register_shapes

HEADER = '<ir_version: 10, opset_import: ["" : 20, "test" : 1]>\n'


def parse(text: str, weights: str = "") -> ir.Model:
    """A model from ONNX text without its header, typed and shaped.

    The inputs named in `weights` become initializers, of normal numbers.
    """
    register_shapes()
    model = ir.from_onnx_text(HEADER + text)
    if not any(node.domain == "test" for node in model.graph.all_nodes()):
        model.opset_imports.pop("test")
    for seed, name in enumerate(weights.split()):
        (value,) = (v for v in model.graph.inputs if v.name == name)
        model.graph.inputs.remove(value)
        value.const_value = ir.Tensor(floats(*value.shape.numpy(), seed=seed), name=name)
        model.graph.register_initializer(value)
    shapes.infer(model)
    return model


def lines(model: ir.Model, stage: str | None = None) -> list[str]:
    """The nodes of a model as `outputs = Op (inputs)`, perhaps of one stage only."""
    return [
        f"{', '.join(v.name for v in n.outputs)} = {n.op_type} "
        f"({', '.join(v.name if v is not None else '' for v in n.inputs)})"
        for n in model.graph
        if stage in (None, n.metadata_props.get("gradtool.stage"))
    ]


def gradients(training: gt.TrainingGraph, **feeds) -> dict[str, np.ndarray]:
    """Gradients on our kernels."""
    return dict(gt.run(training, feeds).gradients)


def stock(model: ir.Model, **feeds) -> dict[str, np.ndarray]:
    """All outputs in stock onnxruntime, composites replaced by their bodies."""
    import onnxruntime as ort

    model = model.clone()
    inline(model)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers in single precision."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)

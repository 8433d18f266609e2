"""Kits for training a model with onnxruntime from programs in other languages.

A folder with `step.onnx` (a whole training step as a pure function), `eval.onnx` (the forward model
on the same state), the state to begin with, and `manifest.json`, which says how they go together.
`gradtool schema kit` prints the schema of the latter, docs/kit.md describes it.
"""

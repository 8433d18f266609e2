"""Traits of the operators of the random family."""

from __future__ import annotations

from gradtool.ops.traits import traits

traits("Bernoulli", onnxruntime="body")
traits("RandomNormalLike RandomUniformLike", unread=0)

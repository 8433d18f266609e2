"""Traits of the operators of the random family."""

from gradtool.ops.traits import traits

traits("Bernoulli", onnxruntime="body")
traits("RandomNormalLike RandomUniformLike", unread=0)

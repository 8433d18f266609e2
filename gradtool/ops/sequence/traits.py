"""Traits of the operators of the sequence family."""

from gradtool.ops.traits import traits

traits("SequenceMap", uncounted="the length of a sequence is not known", onnxruntime="body")

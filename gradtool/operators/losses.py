"""Numbers by which losses stay finite, as PyTorch has them."""

from __future__ import annotations

# The least value of each logarithm of a binary cross-entropy.
LOWEST_LOG = -100.0
# The least divisor `p (1 - p)` of its gradient.
LEAST_VARIANCE = 1e-12
# A label that no scores have a class for.
NO_CLASS = 2**31 - 1
# The label that counts for nothing where nobody names one; PyTorch's.
IGNORED = -100
# Operators of scores and labels, each label a class.
OF_CLASSES = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
# The same and those that make the scores themselves; labels are the second input of each.
WITH_LABELS = (*OF_CLASSES, "LinearCrossEntropy")
# Classes from which on the scores are what a step is remembered by: a classifier of ImageNet has
# fewer, the vocabulary of a language model more.
MANY_CLASSES = 4096

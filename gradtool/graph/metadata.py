"""The keys of a model's metadata that are gradtool's; docs/architecture.md says what each holds."""

from __future__ import annotations

# Of the model.
LOSS = "gradtool.loss"
GRADIENTS = "gradtool.gradients"
STATE = "gradtool.state"
OPTIMIZER = "gradtool.optimizer"
DEFAULTS = "gradtool.defaults"
LOWER = "gradtool.lower"
BUFFERS = "gradtool.buffers"
PLAN = "gradtool.plan"
SAVED = "gradtool.saved"
WHOLE = "gradtool.whole"
HEADS = "gradtool.heads"
LOAD = "gradtool.load"

# Of a node.
STAGE = "gradtool.stage"
SOURCE = "gradtool.source"
MIRROR = "gradtool.mirror"
HOISTED = "gradtool.hoisted"
CALL = "gradtool.call"
CALLEE = "gradtool.callee"
BARRIER = "gradtool.barrier"

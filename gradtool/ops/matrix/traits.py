"""Traits of the operators of the matrix family."""

from gradtool.ops.traits import traits

traits("ai.gradtool::DetGrad", uncounted="singular values are found by iteration")
traits("Det", residuals="X")
traits("EyeLike", unread=0)

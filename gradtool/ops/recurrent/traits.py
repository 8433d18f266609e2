"""Traits of the operators of the recurrent family."""

from gradtool.ops.traits import traits

traits("ai.gradtool::GRUGrad ai.gradtool::LSTMGrad ai.gradtool::RNNGrad", recompute="product")
traits("GRU RNN", recompute="product", residuals="B, initial_h, R, sequence_lens, W, X, Y")
traits(
    "LSTM", recompute="product", residuals="B, initial_c, initial_h, P, R, sequence_lens, W, X, Y"
)

"""Traits of the operators of the signal family."""

from gradtool.ops.traits import traits

traits("DFT", residuals="dft_length")
traits("MelWeightMatrix", uncounted="its numbers say how many entries differ from zero")
traits("STFT", residuals="frame_length, frame_step, signal, window")

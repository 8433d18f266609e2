"""Annealing of whole schedules: the last stage, the same with and without numba."""

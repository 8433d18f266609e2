"""Operators, a folder for each family: gradient rules, bodies of composites, kernels, costs.

A file is called by its part: `gradient.py`, `body.py`, `kernel.py`, `native.py`, `cost.py`, with a
word behind it (`kernel_grad.py`) where one file is too long.  Registries import those of a part.
"""

"""Operators, a folder for each family: gradient rules, bodies of composites, kernels, costs.

A file is called by its part: `formula.py`, `gradient.py`, `body.py`, `kernel.py`, `native.py`,
`cost.py`, `traits.py`, `conventions.py`, with a word behind it (`kernel_grad.py`) where one file is
too long.  `index.json` has the operators that each registers: a registry imports what it is asked
for.
"""

"""Passes for one allocator: what makes stock onnxruntime's arena take what is planned.

It merges common subexpressions, orders nodes anew, and puts a value where a dead one of its size
was: barriers keep clones apart and late, control edges order nodes, and sizes are hidden.
"""

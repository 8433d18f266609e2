"""Passes for one allocator, that keep stock onnxruntime's arena to the plan.

It merges common subexpressions, orders nodes anew, and puts a value where a dead one of its size
was: barriers keep clones apart and late, control edges order nodes, and sizes are hidden.
"""

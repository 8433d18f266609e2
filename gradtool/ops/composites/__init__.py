"""Calls of composites: their replacement by bodies, the way back, and their costs."""

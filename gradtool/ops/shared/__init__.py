"""Idioms of several families: accumulation, blocks, bounds, types."""

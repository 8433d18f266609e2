"""A training graph, and the ways to plan it."""

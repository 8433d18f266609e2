"""Losses by name, attached to a graph."""

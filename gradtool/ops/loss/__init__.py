"""Losses of class scores."""

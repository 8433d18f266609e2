"""Quantisation, and products of integers."""

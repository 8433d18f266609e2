"""Semantics of operators by the standard, for the packages of several concerns."""

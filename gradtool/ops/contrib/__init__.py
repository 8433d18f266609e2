"""Composites that operators of com.microsoft become."""

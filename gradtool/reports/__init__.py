"""Rows of numbers, and how they look on a terminal, in Markdown, CSV and JSON."""

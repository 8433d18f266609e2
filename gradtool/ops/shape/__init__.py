"""Layouts, windows, joins and borders: data that move."""

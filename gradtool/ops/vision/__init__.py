"""Grids, samples, regions of interest and boxes."""

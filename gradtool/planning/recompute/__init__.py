"""Recompute by rule: mirroring, segments, and the policies that allow it."""

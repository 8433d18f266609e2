"""Emits typed, shaped nodes: the only room that creates them."""

"""Graph to graph: loss, training forms, backward, pruning."""

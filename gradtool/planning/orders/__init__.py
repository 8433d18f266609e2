"""Orders without recompute: the least peak of any, and the bounds that prove it."""

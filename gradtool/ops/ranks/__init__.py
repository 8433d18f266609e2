"""Results of several ranks together."""

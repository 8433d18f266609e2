"""Plans within a budget of memory or of work: what is asked for, and the search for it."""

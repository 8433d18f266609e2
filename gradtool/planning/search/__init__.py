"""The least extra work within a budget, and its lower bound."""

"""The least extra work that fits into a budget, and how little it could be."""

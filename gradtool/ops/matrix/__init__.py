"""Square matrices."""

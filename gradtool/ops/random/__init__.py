"""Random draws, and Dropout."""

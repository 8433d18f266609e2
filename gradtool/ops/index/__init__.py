"""Reading and writing by indices."""

"""What the standard says of an operator that several rooms need."""

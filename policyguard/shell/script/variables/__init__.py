"""What the variables of a text stand for."""

"""Functions: the table of functions that expressions may call, and those that policies need."""

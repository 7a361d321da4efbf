"""Types: what expressions are checked against, and the Python classes of their values."""

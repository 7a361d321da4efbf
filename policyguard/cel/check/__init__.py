"""Checking: what the names, operators and calls of a tree mean, and what is wrong with them."""

"""Code generation: a checked tree to the text of a Python function."""

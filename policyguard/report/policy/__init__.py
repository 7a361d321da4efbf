"""Policies as text: annotated with their sources, compared, or to start from."""

"""Marks: what calls have set, by scope and owner."""

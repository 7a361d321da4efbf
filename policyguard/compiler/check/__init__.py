"""Checks of a merged policy: references, patterns, placeholders, examples, tool schemas."""

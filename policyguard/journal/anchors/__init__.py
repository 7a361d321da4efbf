"""Anchors: what the end of each journal was, kept where the journal's writer may not write."""

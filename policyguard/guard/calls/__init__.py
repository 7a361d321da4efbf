"""Calls: from an attempt to its decision, and to its result."""

"""The memory store."""

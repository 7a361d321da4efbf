"""Pinned tools: the definitions that were reviewed, kept in a lock, and what differs from them."""

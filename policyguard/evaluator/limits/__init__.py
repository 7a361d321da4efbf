"""Limits: checks on a session's sequence of calls, and what they keep of it."""

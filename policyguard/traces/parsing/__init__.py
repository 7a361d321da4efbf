"""Parsers that several importers share: untrusted JSON, message content, times, usage, spans."""

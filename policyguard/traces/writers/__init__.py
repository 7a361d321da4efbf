"""Formats that other programs read, written from events: one module each."""

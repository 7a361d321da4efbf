"""Logs of inspect_ai."""

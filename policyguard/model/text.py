"""Untrusted text, made fit for people, models and JSON."""

from __future__ import annotations


def sanitize(text: str) -> str:
    """Replace what is not printable by spaces: controls, line separators, writing directions."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text)


def escape_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot hold, by escapes."""
    return text.encode("utf-8", "backslashreplace").decode()

"""Texts as stores and journals can hold them."""

from __future__ import annotations


def well_formed(text: str) -> str:
    """The text with escapes in place of halves of surrogate pairs, which UTF-8 does not have."""
    return text.encode("utf-8", "backslashreplace").decode()

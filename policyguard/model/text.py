"""Text that a stranger wrote, where people and models read it."""

from __future__ import annotations


def sanitize(text: str) -> str:
    """The same on one line: spaces for what forges lines, moves cursors or turns their direction.

    That are controls of both kinds (C0, C1), separators of lines, what directs writing, and all
    else that Unicode does not count as printed.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text)


def escape_surrogates(text: str) -> str:
    """The text with escapes in place of halves of surrogate pairs, which UTF-8 does not have."""
    return text.encode("utf-8", "backslashreplace").decode()

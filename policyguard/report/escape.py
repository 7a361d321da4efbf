"""Untrusted text, made fit for where it is shown."""

from __future__ import annotations


def for_terminal(text: str, most: int | None = None) -> str:
    """One line without control characters (which could move the cursor or forge lines), cut."""
    safe = "".join(c if c.isprintable() else "�" if c != "\n" else " " for c in text)
    return safe if most is None or len(safe) <= most else safe[: most - 1] + "…"

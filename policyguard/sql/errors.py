"""The error for SQL that cannot be read for certain."""

from __future__ import annotations


class SqlError(ValueError):
    """SQL that the parser does not know, or that databases read differently."""

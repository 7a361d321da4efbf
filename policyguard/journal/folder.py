"""The names of the files in a folder of journals."""

from __future__ import annotations

import hashlib
from pathlib import Path

from policyguard.engines.lazy_pattern import lazy_pattern

SUFFIX = ".jsonl"

_UNSAFE = lazy_pattern(r"[^A-Za-z0-9._-]+")
_PREFIX_CHARACTERS = 40
"""The length of the readable prefix."""
_JOURNAL_NAME = lazy_pattern(r"(?:.*-)?[0-9a-f]{32}\.jsonl")


def file_name(session: str) -> str:
    """Return a name unique to the session, and never a path, whatever its id is.

    It is a readable prefix and a hash of the whole id, so that similar ids have different files.
    """
    digest = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    prefix = _UNSAFE.sub("_", session)[:_PREFIX_CHARACTERS].strip("._-")
    return f"{prefix}-{digest}{SUFFIX}" if prefix else f"{digest}{SUFFIX}"


def is_journal_name(file: Path) -> bool:
    """Return whether a file has the name of a journal."""
    return _JOURNAL_NAME.fullmatch(file.name) is not None

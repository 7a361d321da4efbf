"""The name of a session's journal file."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

SUFFIX = ".jsonl"

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_PREFIX_CHARACTERS = 40
"""Letters of the session's id that stand in the name, for whoever looks into the folder."""
_JOURNAL_NAME = re.compile(r"(?:.*-)?[0-9a-f]{32}\.jsonl")


def file_name(session: str) -> str:
    """A name that is the session's alone, and no path, whatever its id is.

    A readable prefix, and a hash of the whole id: two ids that look alike have two files.
    """
    digest = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    readable = _UNSAFE.sub("_", session)[:_PREFIX_CHARACTERS].strip("._-")
    return f"{readable}-{digest}{SUFFIX}" if readable else f"{digest}{SUFFIX}"


def is_journal_name(file: Path) -> bool:
    """Whether a file is named as journals are."""
    return _JOURNAL_NAME.fullmatch(file.name) is not None

"""Entries of a policy's data by the name of a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from policyguard.engines.regex import Regex
from policyguard.shell.globs import to_regex

T = TypeVar("T")


class Lookup(Generic[T]):
    """Entries by program, by program and first word (`docker exec`), or by a glob (`python*`)."""

    def __init__(self, entries: Mapping[str, T]) -> None:
        self._exact = {name: entry for name, entry in entries.items() if "*" not in name}
        self._globs = [
            (Regex(to_regex(name)), entry) for name, entry in entries.items() if "*" in name
        ]
        self._pairs = {name.partition(" ")[0] for name in entries if " " in name}

    def has_pairs(self, program: str) -> bool:
        """Whether entries of `program` go by its first word."""
        return program in self._pairs

    def find(self, name: str) -> T | None:
        """Return the entry of `name`, or None."""
        entry = self._exact.get(name)
        if entry is None and self._globs:
            for regex, entry_of_glob in self._globs:
                if regex.search(name):
                    return entry_of_glob
        return entry

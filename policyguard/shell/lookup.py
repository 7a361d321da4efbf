"""Entries of a policy's data by the name of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from policyguard.engines.star_glob import StarGlob

T = TypeVar("T")


class Lookup(Generic[T]):
    """Entries by program, by program and first word (`docker exec`), or by a glob (`python*`)."""

    def __init__(self, entries: Mapping[str, T], most: int) -> None:
        """Index `entries`; the answers for at most `most` names are kept."""
        self._most = most
        self._kept: dict[str, T | None] = {}
        self._exact = {name: entry for name, entry in entries.items() if "*" not in name}
        self._globs = [(StarGlob(name), entry) for name, entry in entries.items() if "*" in name]
        self._pairs = {name.partition(" ")[0] for name in entries if " " in name}

    def find_for(self, program: str, arguments: Sequence[str]) -> tuple[str, T | None]:
        """Return the entry of `program`, or of it and its first operand, under its name."""
        if program in self._pairs:
            first = next((word for word in arguments if word[:1] != "-"), "")
            entry = self.find(f"{program} {first}")
            if entry is not None:
                return f"{program} {first}", entry
        return program, self.find(program)

    def may_find_pair(self, program: str, arguments: Sequence[str]) -> bool:
        """Whether there is an entry of `program` and its first operand."""
        return program in self._pairs and self.find_for(program, arguments)[1] is not None

    def find(self, name: str) -> T | None:
        """Return the entry of `name`, or None."""
        try:
            return self._kept[name]
        except KeyError:
            pass
        entry = self._exact.get(name)
        if entry is None:
            entry = next((entry for glob, entry in self._globs if glob.matches(name)), None)
        if len(name) < 64:
            if len(self._kept) >= self._most:
                self._kept.clear()
            self._kept[name] = entry
        return entry

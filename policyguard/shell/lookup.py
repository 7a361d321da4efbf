"""Entries of a policy's data by the name of a program, and of its subcommand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from policyguard.engines.star_glob import StarGlob

T = TypeVar("T")


class Lookup(Generic[T]):
    """Entries by program, by program and subcommand (`docker compose exec`), or a glob."""

    def __init__(self, entries: Mapping[str, T], most: int) -> None:
        """Index `entries`; the answers for at most `most` names are kept."""
        self._most = most
        self._kept: dict[str, T | None] = {}
        self._exact = {name: entry for name, entry in entries.items() if "*" not in name}
        self._globs = [(StarGlob(name), entry) for name, entry in entries.items() if "*" in name]
        self._groups = {name.rpartition(" ")[0] for name in entries if " " in name}
        self._groups |= {name.partition(" ")[0] for name in self._groups}

    def find_for(
        self, program: str, arguments: Sequence[str]
    ) -> tuple[str, T | None, Sequence[str]]:
        """Return the entry of `program` and its subcommand, or else of `program`.

        Before the entry stands its name, behind it the arguments that follow this name.
        """
        if program in self._groups:
            name, behind = self._find_subcommand(program, arguments)
            if name:
                return name, self.find(name), behind
        return program, self.find(program), arguments

    def has_subcommand(self, program: str, arguments: Sequence[str]) -> bool:
        """Whether there is an entry of `program` and a subcommand that it is given."""
        return program in self._groups and self._find_subcommand(program, arguments)[0] != ""

    def _find_subcommand(self, group: str, words: Sequence[str]) -> tuple[str, Sequence[str]]:
        """Return the name of an entry, and the words behind it; `""` if there is none.

        A subcommand is the first operand. One behind an option may be the value of that.
        """
        is_option = was_group = False
        for index, word in enumerate(words):
            if word[:1] == "-":
                is_option = True
                continue
            name = f"{group} {word}"
            # What is behind a second one was looked at with the first.
            if name in self._groups and not (was_group and is_option):
                was_group = True
                longer, rest = self._find_subcommand(name, words[index + 1 :])
                if longer:
                    return longer, rest
            if name in self._exact:
                return name, words[index + 1 :]
            if not is_option:
                break
            is_option = False
        return "", ()

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

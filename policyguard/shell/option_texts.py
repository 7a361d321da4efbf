"""Command texts in the arguments of programs that are no wrappers: `git -c alias.x='!rm y'`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from policyguard.engines.regex import Regex
from policyguard.model.shell import Program, Shell
from policyguard.shell.arguments import read_arguments
from policyguard.shell.lookup import Lookup

_QUOTES = "'\"`"


class OptionTexts:
    """Finds the texts by the data of one policy. Safe to share between threads."""

    def __init__(self, facts: Shell, programs: Lookup[Program]) -> None:
        self._programs = programs
        self._text = frozenset(facts.unlisted_text)
        self._after = frozenset(facts.unlisted_after)
        self._words = self._text | self._after
        self._beginnings = tuple(f"{name}=" for name in facts.unlisted_text if name[:2] == "--")

    def may_be_in(self, program: str, arguments: Sequence[str]) -> bool:
        """Whether a program may run another by an option or a setting."""
        known = self._programs.find(program)
        if known is not None:
            return next(self.find(known, arguments), None) is not None
        return not self._words.isdisjoint(arguments) or any(
            word.startswith(self._beginnings) for word in arguments
        )

    def find(self, program: Program, arguments: Sequence[str]) -> Iterator[str]:
        """Yield the texts that a listed program runs."""
        if program.text:
            for option in read_arguments(arguments, program).options:
                if option.value and _is_one_of(option.text, program.text):
                    yield option.value
        if program.runs:
            pattern = _compile(program.runs)
            for word in arguments:
                if (span := pattern.find_span(word)) is not None:
                    yield _cut(word, span[1])

    def guess(self, arguments: Sequence[str]) -> Iterator[str | list[str]]:
        """Yield the texts, and the words of commands, that a program in no list may run.

        One word is more often a file or a name than a command.
        """
        for index, word in enumerate(arguments):
            following = arguments[index + 1 :]
            if word in self._after:
                if following and following[0][:1] != "-":
                    yield [*following]
                return  # what follows belongs to that command
            if word in self._text:
                text = "".join(following[:1])
            elif word.startswith(self._beginnings):
                text = word.partition("=")[2]
            else:
                continue
            if " " in text.strip():
                yield text
            elif word in self._text and len(following) > 1 and text[:1] not in ("", "-"):
                yield [*following]
                return


def _is_one_of(option: str, names: Sequence[str]) -> bool:
    """Whether an option with a value is one of `names`, if only the last letter of a cluster."""
    if option in names:
        return True
    return option[:2] != "--" and any(f"-{letter}" in names for letter in option[1:])


def _cut(word: str, start: int) -> str:
    """Return what stands behind `start`, up to the quote that closes one in front of it."""
    quote = word[start - 1 : start]
    return word[start:].partition(quote)[0] if quote and quote in _QUOTES else word[start:]


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Regex:
    return Regex(pattern)

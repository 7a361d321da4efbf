"""Command texts in the arguments of programs that are no wrappers: `git -c alias.x='!rm y'`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from policyguard.engines.regex import Regex
from policyguard.model.shell import Program, Shell
from policyguard.shell.arguments import read_arguments
from policyguard.shell.lookup import Lookup
from policyguard.shell.words import is_static

_QUOTES = "'\"`"
_OPERANDS = "operands"
"""In `text`: each word that is no option."""


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
            if known.hides and not known.text:
                either = _compile_for_lines(f"(?:{known.hides}|{known.runs or known.hides})")
                return either.search("\n".join(arguments))
            has_texts = known.text or known.runs
            if has_texts and next(self.find(known, arguments, program), None) is not None:
                return True
            return bool(known.hides) and hides_command(known, arguments)
        return not self._words.isdisjoint(arguments) or any(
            word.startswith(self._beginnings) for word in arguments
        )

    def find(self, program: Program, arguments: Sequence[str], name: str) -> Iterator[str]:
        """Yield the texts that a listed program, called `name`, runs."""
        if program.text and _may_have_one(program.text, arguments):
            read = read_arguments(arguments, program)
            for option in read.options:
                if option.value and _is_one_of(option.text, program.text):
                    yield option.value
            if _OPERANDS in program.text:
                yield from read.operands
        words = arguments
        if program.settings and any(word in arguments for word in program.settings):
            words = [*arguments, *map("=".join, pairwise(arguments))]
        if program.runs and _compile_for_lines(program.runs).search("\n".join(words)):
            pattern = compile_pattern(program.runs)
            previous = ""
            for index, word in enumerate(words):
                is_prose, previous = _takes_prose(previous, program), word
                if not is_prose and (span := pattern.find_span(word)) is not None:
                    if not (program.own and compile_pattern(program.own).search(word[: span[1]])):
                        yield _cut(word, span[1])
                    elif index < len(arguments):  # else it is kept, and not run
                        behind = map(_write, arguments[index + 2 :])  # the next word is its name
                        yield " ".join((name, word[span[1] :], *behind))

    def find_in(self, program: Program, text: str) -> Iterator[str]:
        """Yield the texts in the lines of what a listed program reads."""
        pattern = compile_pattern(program.runs)
        for line in text.replace("\\\n", " ").splitlines():
            if (span := pattern.find_span(line)) is not None:
                yield _cut(line, span[1])

    def guess(self, arguments: Sequence[str]) -> Iterator[str | list[str]]:
        """Yield the texts, and the words of commands, that a program in no list may run.

        One word is more often a file or a name than a command.
        """
        for index, word in enumerate(arguments):
            following = arguments[index + 1 :]
            if word in self._after:
                if len(following) == 1 and " " in following[0]:
                    yield following[0]
                elif following and following[0][:1] != "-":
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


def hides_command(program: Program, arguments: Sequence[str]) -> bool:
    """Whether a listed program runs, for a word of its own, what cannot be seen."""
    return _compile_for_lines(program.hides).search("\n".join(arguments))


def _may_have_one(names: tuple[str, ...], arguments: Sequence[str]) -> bool:
    """Whether some word may have one of these options; the values of others are not looked at."""
    if _OPERANDS in names:
        return True
    for word in arguments:
        if word[:1] != "-":
            continue
        if word[:2] == "--" and len(word) > 3:
            option = word.partition("=")[0]
            if any(name.startswith(option) for name in names):
                return True
        elif not _find_letters(names).isdisjoint(word):
            return True
    return False


@lru_cache(maxsize=256)
def _find_letters(names: tuple[str, ...]) -> frozenset[str]:
    """Return the letters of options with one dash."""
    return frozenset(name[1] for name in names if name[:2] != "--")


def _is_one_of(option: str, names: Sequence[str]) -> bool:
    """Whether an option with a value is one of `names`, cut short or within a cluster too."""
    if option in names:
        return True
    if option[:2] == "--":
        return len(option) > 3 and any(name.startswith(option) for name in names)
    return any(f"-{letter}" in names for letter in option[1:])


def _takes_prose(option: str, program: Program) -> bool:
    """Whether the word behind this one is text for people, as behind `-am` of `git commit`."""
    if option in program.prose:
        return True
    return option[:1] == "-" and option[1:2] != "-" and f"-{option[-1]}" in program.prose


def _write(word: str) -> str:
    from shlex import quote

    return quote(word) if is_static(word) else word


def _cut(word: str, start: int) -> str:
    """Return what stands behind `start`, up to the quote that closes one in front of it."""
    quote = word[start - 1 : start]
    return word[start:].partition(quote)[0] if quote and quote in _QUOTES else word[start:]


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Regex:
    """Compile RE2 of a policy's data once, not in each reading."""
    return Regex(pattern)


@lru_cache(maxsize=256)
def _compile_for_lines(pattern: str) -> Regex:
    """Return a pattern for all words at once, each a line: it may match where none does alone."""
    return Regex(f"(?m){pattern}")

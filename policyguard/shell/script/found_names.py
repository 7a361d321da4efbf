"""Names that a program like find comes upon, by its folders and patterns."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise, takewhile

from policyguard.model.shell import Wrapper
from policyguard.shell.command_line import GLOB, MANY, NAME, START
from policyguard.shell.globs import mark_wildcards
from policyguard.shell.words import is_static

_BEFORE_FOLDERS = frozenset(("-H", "-L", "-P", "--"))
"""Options of find that stand before its folders."""
_NEGATING = frozenset(("!", "-not"))
_ALTERNATIVES = frozenset(("-o", "-or"))
_GROUPS = frozenset(("(", "\\("))
_ENDS = frozenset((";", "+"))
_OF_PATHS = frozenset(("-path", "-ipath", "-wholename", "-iwholename"))
_FROM_FILE = "-files0-from"
_GLOB_OPTIONS = frozenset(("-g", "--glob"))
"""With them, the pattern of fd is a glob."""
_ENDINGS = frozenset(("-e", "--extension"))
_REGEX = re.compile(r"\\([^\w])|\.[*+?]|(?:\\\w|\[[^\]]*\]|\([^)]*\))[*+?]*")
"""What stands for others in a regular expression, and characters that are escaped.

A lone dot is a dot: few that write it mean another character.
"""
_WILDCARD = re.compile(r"\[[^\]/]+\]|[*?]")


def find_names_of(
    wrapper: Wrapper, arguments: Sequence[str], actions: Collection[str] = ()
) -> list[str]:
    """Return words for the names that a program like find comes upon.

    A pattern behind one of `actions`, or behind `-exec`, is asked for when that has been done.
    """
    if wrapper.appends:
        return _find_by_regex(wrapper, arguments)
    words = list(arguments)
    while words and (words[0] in _BEFORE_FOLDERS or words[0][:2] in ("-O", "-D")):
        del words[: 2 if words[0] == "-D" else 1]
    if any(word.startswith(_FROM_FILE) for word in words):
        return [MANY]
    starts = [start.rstrip("/") or "/" for start in takewhile(_is_start, words)] or ["."]
    patterns = _find_patterns(wrapper, words, {*wrapper.after, *actions})
    below = [start.rstrip("/") for start in starts]
    if not patterns:
        return [*starts, *(f"{start}/{NAME}" for start in below)]
    own = [start for start in starts if any(_may_be(start, pattern) for pattern in patterns)]
    ends = [end for name in patterns for end in (name, f"{NAME}/{name}")]
    return [*own, *(f"{start}/{end}" for start in below for end in ends)]


def _find_by_regex(wrapper: Wrapper, arguments: Sequence[str]) -> list[str]:
    """Return words for the names that a program like fd comes upon: `fd pattern folder…`."""
    own = [*takewhile(lambda word: word not in wrapper.after, arguments)]
    operands = [
        word
        for before, word in pairwise(["", *own])
        if before not in wrapper.values and (word[:1] != "-" or not word)
    ]
    pattern, *folders = operands or [""]
    ends = [f".{word}" for before, word in pairwise(own) if before in _ENDINGS]
    below = [folder.rstrip("/") for folder in folders or ["."]]
    if pattern in ("", ".") and not ends:
        return [*(folders or ["."]), *(f"{folder}/{NAME}" for folder in below)]
    if not _GLOB_OPTIONS.isdisjoint(own):
        found = [mark_wildcards(pattern)]
    else:
        found = [*map(_read_regex, pattern.split("|") if "(" not in pattern else [pattern])]
    names = [f"{name}{end}" for name in found for end in ends or [""]]
    return [
        f"{folder}/{one}{name}" for folder in below for one in ("", f"{NAME}/") for name in names
    ]


def _read_regex(pattern: str) -> str:
    """Return a word for the names that a regular expression finds."""
    begin, end = GLOB * (pattern[:1] != "^"), GLOB * (pattern[-1:] != "$")
    plain = pattern.removeprefix("^").removesuffix("$")
    return begin + _REGEX.sub(lambda match: match[1] or GLOB, plain) + end


def _is_start(word: str) -> bool:
    return word[:1] not in ("-", "(", "!")


def _find_patterns(wrapper: Wrapper, words: Sequence[str], actions: Collection[str]) -> list[str]:
    """Return the patterns one of which a name has that something is done with; none if any may."""
    patterns: list[str] = []
    is_named = is_done = False
    left = iter(zip(["", *words], words, [*words[1:], ""], strict=False))
    for before, word, value in left:
        if word == "," or (word in _NEGATING and value in _GROUPS):
            return []
        if word in _ALTERNATIVES or word in actions:
            if not is_named:
                return []
            is_done = word in actions
            is_named = is_done
            if word in wrapper.after:
                next((True for _, end, _ in left if end in _ENDS), None)
        elif word in wrapper.names and before not in _NEGATING and not is_done:
            found = _read_pattern(word, value)
            if found is not None:
                patterns += found
                is_named = True
    return patterns if is_named else []


def _read_pattern(option: str, value: str) -> list[str] | None:
    """Return words for the last part of a name; None if it may be any, and that of a folder."""
    folder, _, name = value.rstrip("/").rpartition("/") if option in _OF_PATHS else ("", "", value)
    plain = _WILDCARD.sub(GLOB, name)
    if option in _OF_PATHS and not plain.strip(GLOB):
        return [NAME] if folder else None
    return [*dict.fromkeys((plain, plain.lower()))] if option[1] == "i" else [plain]


def _may_be(start: str, pattern: str) -> bool:
    """Whether a folder that is searched may itself have a name."""
    if START in start or not is_static(start):
        return True
    parts = map(re.escape, pattern.split(GLOB))
    return re.fullmatch(".*".join(parts), start.rpartition("/")[2]) is not None

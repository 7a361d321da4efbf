"""Redaction of a policy's patterns in the texts of results."""

from __future__ import annotations

import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate

import msgspec

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.engines.regex import Regex, RegexSet
from policyguard.model.errors import ExpressionError

_MAX_ROUNDS = 4
"""How often what is left is searched again: parts around a replacement may match in turn."""
_MARGIN = 4096
"""Characters beyond the cut in which a match that begins before it is still seen whole."""
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d"
_INVISIBLE = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff")
"""What is not to be seen inside a word: soft hyphen, zero-width spaces and joiners."""
_ESCAPE = lazy_pattern("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[^\\[\\]])")
"""What a terminal does not show: colours (`grep --color`), titles and links."""
_BEYOND_ASCII = lazy_pattern(r"[^\x00-\x7f]")
_FEW = 16
"""So many replacements of single letters are faster than a table of them."""


class _Match(msgspec.Struct, frozen=True):
    """Where a pattern matches, in characters."""

    start: int
    end: int
    name: str


class PatternRedactor:
    """Named patterns, searched in the first `max_chars` characters of a text.

    A text is also searched as it looks: with plain spaces, hyphens and letters for their Unicode
    look-alikes, and without invisible characters and colours of a terminal.
    """

    def __init__(self, patterns: Sequence[tuple[str, str]], max_chars: int) -> None:
        self._names = [name for name, _ in patterns]
        self._sources = [source for _, source in patterns]
        self._max_chars = max_chars

    def occurs_in(self, text: str) -> bool:
        """Whether one of the patterns matches a part of the text."""
        return bool(self._find(text[: self._max_chars + _MARGIN]))

    def redact(self, text: str) -> str:
        """Return the text with `[name]` for each match; the same object if there is none.

        Matches that overlap become one. Of a longer text the rest is left out, which it says.
        `ExpressionError` if a pattern still matches what is left.
        """
        cut = self._max_chars
        rest = len(text) - cut
        window = text if rest <= 0 else text[: cut + _MARGIN]
        found = [match for match in self._find(window) if match.start < cut]
        if rest > 0:
            end = max(cut, found[-1].end) if found else cut
            window, rest = window[:end], len(text) - end
        redacted = _replace_all(window, found)
        # The cut may end a word, so that a pattern matches which did not before.
        for _ in range(_MAX_ROUNDS if found or rest > 0 else 0):
            found = self._find(redacted)
            if not found:
                break
            redacted = _replace_all(redacted, found)
        if found:
            raise ExpressionError(f"pattern `{found[0].name}` matches what replaces it")
        if rest > 0:
            return f"{redacted}\n[… {rest:,} characters withheld: beyond `bounds.result_chars`]"
        return redacted

    def redact_across(self, texts: Sequence[str]) -> list[str]:
        """Return texts without the matches that go on from one to the next."""
        bounds = [0, *accumulate(map(len, texts))]
        whole = "".join(texts)[: self._max_chars + _MARGIN]
        across = [
            match
            for match in self._find(whole)
            if bisect_right(bounds, match.start) != bisect_right(bounds, match.end - 1)
        ]
        return [
            _replace_all(
                text,
                [
                    _Match(
                        max(match.start - start, 0), min(match.end - start, len(text)), match.name
                    )
                    for match in across
                    if match.start < start + len(text) and match.end > start
                ],
            )
            for start, text in zip(bounds, texts, strict=False)
        ]

    @cached_property
    def _regexes(self) -> list[Regex]:
        return [Regex(source) for source in self._sources]

    @cached_property
    def _any(self) -> RegexSet:
        return RegexSet(self._sources, head=sys.maxsize)  # a replacement may be the longer one

    def _find(self, text: str) -> list[_Match]:
        """Return the matches in a text, from left to right; those that overlap as one."""
        matches = list(self._search(text))
        if "\x1b" in text:  # its last letter is no part of the word behind it
            spaced = _ESCAPE.sub(lambda escape: " " * len(escape[0]), text)
            matches += self._search(spaced)
        if "\x1b" in text or not text.isascii():
            seen, places = _as_it_looks(text)
            if seen != text:
                matches += [
                    _Match(places[match.start], places[match.end - 1] + 1, match.name)
                    for match in self._search(seen)
                ]
        matches.sort(key=lambda match: (match.start, -match.end))
        merged: list[_Match] = []
        for match in matches:
            if merged and match.start < merged[-1].end:
                last = merged[-1]
                merged[-1] = _Match(last.start, max(match.end, last.end), last.name)
            else:
                merged.append(match)
        return merged

    def _search(self, text: str) -> Iterator[_Match]:
        if self._any.first_match(text) is None:
            return
        data = text.encode("utf-8", "replace")
        is_plain = len(data) == len(text)
        for name, regex in zip(self._names, self._regexes, strict=True):
            place = offset = 0
            for start, end in regex.find_all(data):
                if is_plain:
                    yield _Match(start, end, name)
                    continue
                begin = place + _count(data, offset, start)
                place, offset = begin + _count(data, start, end), end
                yield _Match(begin, place, name)


def _count(data: bytes, start: int, end: int) -> int:
    return len(data[start:end].decode("utf-8", "replace"))


def _replace_all(text: str, matches: Sequence[_Match]) -> str:
    if not matches:
        return text
    parts: list[str] = []
    copied = 0
    for match in matches:
        parts += (text[copied : match.start], f"[{match.name}]")
        copied = match.end
    return "".join((*parts, text[copied:]))


def _as_it_looks(text: str) -> tuple[str, Sequence[int]]:
    """Return a text in plain characters, and where in `text` each of them stands."""
    letters = set(_BEYOND_ASCII.findall(text))
    look_alikes: dict[str, str] = {
        letter: plain for letter in letters if (plain := _find_plain(letter)) != letter
    }
    plain = text
    if len(look_alikes) > _FEW:
        plain = text.translate({ord(letter): other for letter, other in look_alikes.items()})
    else:
        for letter, replacement in look_alikes.items():
            plain = plain.replace(letter, replacement)
    hidden = bytearray(len(text))
    for escape in _ESCAPE.finditer(text):
        hidden[escape.start() : escape.end()] = b"\1" * len(escape[0])
    if 1 not in hidden and _INVISIBLE.isdisjoint(letters):
        return plain, range(len(text))
    kept = [
        index for index, letter in enumerate(text) if letter not in _INVISIBLE and not hidden[index]
    ]
    return "".join([plain[index] for index in kept]), kept


@lru_cache(4096)
def _find_plain(letter: str) -> str:
    """Return the plain character that a letter looks like; the letter itself if there is none."""
    if unicodedata.category(letter) == "Zs":
        return " "
    if letter in _DASHES:
        return "-"
    plain = unicodedata.normalize("NFKC", letter)
    return plain if len(plain) == 1 and plain.isascii() else letter

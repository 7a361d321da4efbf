"""What a shell makes of the parts of a word: escapes, braces, file name patterns."""

from __future__ import annotations

import re
from itertools import pairwise

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.command_line import ANY, GLOB, MANY, MARKS, NAME

BREAK = "\x03"
"""An unquoted separator, as of `$IFS`: the word is cut there."""

EMPTY = "\ue003"
"""A word without text, as of `"$@"`: it is one where other words are cut."""
_SEVERAL = lazy_pattern(f"[{MANY}{GLOB}{NAME}]")
_UNKNOWN = lazy_pattern(f"[{MARKS}]")
BARE = r"\w./:=@%+,*-"
"""Characters that stand for themselves, and `*`, for a regular expression (ASCII)."""
SIMPLE_WORD = rf"""~?(?>(?:[{BARE}]++|\{{\}}|\\[ !#$&()*;<>?\[\]{{|}}]|'[^']*+'|"[^"$`\\]*+")+)"""
"""A word without expansions, as a regular expression (ASCII). Only some escapes are in it."""
_SIMPLE_WORD = lazy_pattern(SIMPLE_WORD, re.ASCII)
_SIMPLE = lazy_pattern(rf"{SIMPLE_WORD}(?>(?:[ \t]++{SIMPLE_WORD})*)", re.ASCII)
_SIMPLE_PART = lazy_pattern(r"""'([^']*)'|"([^"]*)"|\\(.)|\*+""")
_STARS = lazy_pattern(r"\*+")
_SPECIAL = lazy_pattern(r"[\\*?\[{}~]")
_UNQUOTED = lazy_pattern(r"\\\n|\\(.)|\*+|\?|\[[^\]\s/]+\]|[^\\*?\[]+|\[|\\$", re.DOTALL)
_IN_DOUBLE_QUOTES = lazy_pattern(r'\\([$`"\\])|\\\n')
ANSI_C_ESCAPE = lazy_pattern(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))",
    re.DOTALL,
)
_ANSI_C_NAMES = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
_QUOTED = str.maketrans("{},", "\ue000\ue001\ue002")
_RESTORED = str.maketrans("\ue000\ue001\ue002", "{},", EMPTY)
_MAX_BRACE_STEPS = 1 << 18
_RANGE = lazy_pattern(r"(-?\d{1,6}|[A-Za-z])\.\.(-?\d{1,6}|[A-Za-z])(?:\.\.(-?\d{1,6}))?")


def split_simple(text: str) -> list[str] | None:
    """Return the words of a command without expansions, or None if it takes the syntax tree.

    This is what the syntax tree says too, at a tenth of the cost.
    """
    if not _SIMPLE.fullmatch(text):
        return None
    words = read_simple_words(text)
    return None if "=" in words[0] else words


def read_simple_words(text: str) -> list[str]:
    """Return what simple words stand for, with `GLOB` for file name patterns."""
    if "'" in text or '"' in text or "\\" in text:
        words: list[str] = _SIMPLE_WORD.findall(text)
        return [_SIMPLE_PART.sub(_read_simple_part, word) for word in words]
    if "**" in text:
        return _STARS.sub(GLOB, text).split()
    return text.replace("*", GLOB).split()


def _read_simple_part(match: re.Match[str]) -> str:
    return GLOB if match.lastindex is None else match[match.lastindex]


def is_static(word: str) -> bool:
    """Whether nothing of `word` is unknown."""
    return _UNKNOWN.search(word) is None


def is_one_word(word: str) -> bool:
    """Whether `word` stands for one word for certain: a file name pattern may be many."""
    return not _SEVERAL.search(word)


def protect(text: str) -> str:
    """Return quoted `text` so that `expand_braces` leaves it alone."""
    return text.translate(_QUOTED)


def read_unquoted(text: str) -> str:
    """Return what an unquoted `text` stands for, with `GLOB` for file name patterns."""
    if not _SPECIAL.search(text):
        return text
    return "".join(_read_unquoted_part(match) for match in _UNQUOTED.finditer(text))


def _read_unquoted_part(match: re.Match[str]) -> str:
    part = match[0]
    if part[0] == "\\":
        return protect(match[1] or "")
    return GLOB if part[0] in "*?" or (part[0] == "[" and len(part) > 1) else part


def read_double_quoted(text: str) -> str:
    """Return `text`, which stands in double quotes, without its escapes."""
    if "\\" in text:
        text = _IN_DOUBLE_QUOTES.sub(lambda match: match[1] or "", text)
    return protect(text)


def read_ansi_c(text: str) -> str:
    """Return `text`, the inside of `$'…'`, with its escapes decoded."""
    return protect(ANSI_C_ESCAPE.sub(read_ansi_c_escape, text))


def read_ansi_c_escape(match: re.Match[str]) -> str:
    """Return what an escape of `$'…'` stands for."""
    hexadecimal = match[1] or match[2] or match[3]
    if hexadecimal:
        number = int(hexadecimal, 16)
    elif match[4]:
        number = int(match[4], 8) & 0xFF
    elif match[5]:
        number = ord(match[5]) & 0x1F
    else:
        return _ANSI_C_NAMES.get(match[6], match[6])
    # What cannot stand in a word, or looks like one of the marks, is unknown.
    return chr(number) if 8 < number < 0xD800 or 0xE003 < number < 0x110000 else ANY


def join(raw: str, max_words: int) -> str:
    """Return the text that `raw` becomes where no word is cut, as in an assignment."""
    return "".join(finish(raw.replace(BREAK, " ").replace("{", "\ue000"), max_words))


def finish(raw: str, max_words: int) -> list[str]:
    """Return the words that `raw` becomes: braces expanded, cut at `BREAK`, protection removed."""
    words = [raw]
    if "{" in raw and len(raw) * raw.count("{") > _MAX_BRACE_STEPS:
        return [MANY]
    if "{" in raw:
        words = _expand_braces(raw, max_words)
    if BREAK in raw:
        words = [part for word in words for part in word.split(BREAK) if part]
    return [word.translate(_RESTORED) for word in words] if not raw.isascii() else words


def _expand_braces(raw: str, max_words: int) -> list[str]:
    done: list[str] = []
    left = [raw]
    while left:
        word = left.pop()
        if len(left) + len(done) > max_words:
            return [MANY]
        found = _find_braces(word)
        if found is None:
            done.append(word)
        else:
            start, end, options = found
            left.extend(word[:start] + option + word[end:] for option in reversed(options))
    return done


def _find_braces(word: str) -> tuple[int, int, list[str]] | None:
    """Return the first brace expansion of `word`: its start, its end, what it becomes."""
    start = word.find("{")
    while start >= 0:
        depth, cuts = 0, [start]
        for index in range(start, len(word)):
            character = word[index]
            if character == "{":
                depth += 1
            elif character == "," and depth == 1:
                cuts.append(index)
            elif character == "}":
                depth -= 1
                if depth == 0:
                    options = _options(word, [*cuts, index])
                    if options:
                        return start, index + 1, options
                    break
        start = word.find("{", start + 1)
    return None


def _options(word: str, cuts: list[int]) -> list[str]:
    if len(cuts) > 2:
        return [word[a + 1 : b] for a, b in pairwise(cuts)]
    inside = word[cuts[0] + 1 : cuts[1]]
    match = _RANGE.fullmatch(inside)
    if match is None:
        return []
    if match[1].isalpha() != match[2].isalpha():
        return []
    if match[1].isalpha():
        first, last = ord(match[1]), ord(match[2])
        return [chr(code) for code in range(min(first, last), max(first, last) + 1)]
    first, last = sorted((int(match[1]), int(match[2])))
    return [str(number) for number in range(first, last + 1)] if last - first < 64 else [ANY]

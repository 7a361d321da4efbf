"""Globs of command patterns against words of which a part may be unknown."""

from __future__ import annotations

import re

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.engines.regex import Regex
from policyguard.shell.command_line import ANY, GLOB, MANY, MARKS, NAME

_STAR, _PATH_STAR, _FOLDERS = "\x06", "\x07", "\x08"
_ONE = "\x0e"
_SOME_NAME = "\x0b"
_WHOLE_NAME = lazy_pattern(rf"(?:(?<=/)|^){GLOB}(?=/|$)")
"""`*`; `[e][t][c]` says more."""
_STARS = _STAR + _PATH_STAR + _FOLDERS
_WILDCARDS = lazy_pattern(r"\*+|\?|\[[^\]/]*\]")
_MARKS = lazy_pattern(f"[{MARKS}]")


def mark_wildcards(glob: str) -> str:
    """Return a word for the names that a glob of a program or a tool matches."""
    return _WILDCARDS.sub(GLOB, glob)


def to_regex(glob: str) -> str:
    """Return the RE2 text for a glob: `*` stands for any text, `?` for one character."""
    parts = re.split(r"([*?])", glob)
    text = "".join({"*": ".*", "?": "."}.get(part) or re.escape(part) for part in parts)
    return rf"\A(?s:{text})\z"


def to_path_regex(glob: str) -> str:
    """Return the RE2 text for a path glob: `*` stays in one folder, `**` does not."""
    text, below = "", ""
    if glob.endswith("/**"):  # the folder itself, and all below it
        glob, below = glob[:-3], "(?:/.*)?"
    for part in re.split(r"(\*\*/|\*\*|\*|\?)", glob):
        text += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part) or re.escape(
            part
        )
    return rf"\A(?s:{text}{below})\z"


class Glob:
    """Alternatives of one place in a pattern, such as `main|master|release/*`."""

    __slots__ = ("_is_path", "_literals", "_regex", "_tokens", "text")

    def __init__(self, text: str, *, is_path: bool = False) -> None:
        """Read `text`: alternatives by `|`, each a glob (of paths, if `is_path`)."""
        self.text = text
        alternatives = text.split("|")
        self._is_path = is_path
        wild = [item for item in alternatives if "*" in item or "?" in item]
        self._literals = frozenset(alternatives) - frozenset(wild)
        convert = to_path_regex if is_path else to_regex
        self._regex = Regex("|".join(map(convert, wild))) if wild else None
        if is_path:
            alternatives += [item[:-3] for item in alternatives if item.endswith("/**")]
        self._tokens = tuple(_tokenize(item, is_path) for item in alternatives)

    @property
    def literals(self) -> frozenset[str] | None:
        """The words that match; None if they cannot be listed."""
        return self._literals if self._regex is None else None

    def matches(self, word: str) -> bool:
        """Whether a static `word` matches."""
        return word in self._literals or (self._regex is not None and self._regex.search(word))

    def may_match(self, word: str, *, any_name: bool = False) -> bool:
        """Whether `word` may match, its unknown parts being anything.

        Names in paths that say nothing (`*`, or what find prints) are those of a folder, not of one
        kind of file, so only a star of the pattern stands for them, unless `any_name`.
        """
        if not _MARKS.search(word):
            return self.matches(word)
        if MANY in word and not word.strip(MANY + ANY):
            return True
        tokens = self._tokens
        if self._is_path:
            if not any_name:
                word = _WHOLE_NAME.sub(_SOME_NAME, word.replace(NAME, _SOME_NAME))
            if word.startswith("./"):
                word = word[2:]
                tokens = tuple(item for item in tokens if item[0] not in "/~")
        return any(_intersect(item, word, any_name) for item in tokens)


def _tokenize(glob: str, is_path: bool) -> str:
    glob = glob.replace("?", _ONE)
    if not is_path:
        return glob.replace("*", _PATH_STAR)
    return glob.replace("**/", _FOLDERS).replace("**", _PATH_STAR).replace("*", _STAR)


def _intersect(glob: str, word: str, any_name: bool) -> bool:
    """Whether some text matches both, by the pairs of positions that a common text can reach.

    Within one folder name, a `*` of `word` must not stand for what `glob` says while a `*` of
    `glob` stands for what `word` says: `*.txt` and `id_rsa*` have nothing in common but `*`. With
    `any_name` it may.
    """
    if len(glob) * len(word) > 1 << 16:
        return True
    seen = {(0, 0, 0)}
    left = [(0, 0, 0)]
    while left:
        i, j, taken = left.pop()
        if i == len(glob) and j == len(word):
            return True
        for step in _steps(glob, word, i, j, taken):
            if step not in seen and (any_name or step[2] != _BOTH):
                seen.add(step)
                left.append(step)
    return False


_BY_GLOB, _BY_WORD = 1, 2
_BOTH = _BY_GLOB | _BY_WORD


def _steps(glob: str, word: str, i: int, j: int, taken: int) -> list[tuple[int, int, int]]:
    a = glob[i] if i < len(glob) else ""
    b = word[j] if j < len(word) else ""
    steps = []
    if a and a in _STARS:
        if a != _FOLDERS or j == 0 or word[j - 1] in MARKS + "/":
            steps.append((i + 1, j, taken))
        if b and (a != _STAR or b != "/"):
            by = 0 if b == "/" else taken if b in MARKS else taken | _BY_GLOB
            steps.append((i, j + 1, by))
    if b and b in MARKS:
        steps.append((i, j + 1, taken))
        if (
            a
            and not (b == NAME and not i and not j and a in "+:")
            and (b != GLOB or not (a == "/" or (a == "." and _begins_segment(word, j))))
        ):
            by = 0 if a == "/" else taken | _BY_WORD if b == GLOB and a not in _STARS else taken
            steps.append((i + 1, j, by))
    if a and (a == b or (a == _ONE and b and b != "/" and b not in MARKS)):
        steps.append((i + 1, j + 1, 0 if a == "/" else taken))
    return steps


def _begins_segment(word: str, index: int) -> bool:
    return index == 0 or word[index - 1] == "/"

"""What to write instead of syntax that CEL does not have."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_HELP_BY_WORD: Final = {
    "and": "write `&&`",
    "or": "write `||`",
    "not": "write `!`",
    "=": "write `==` to compare",
    "&": "write `&&`",
    "|": "write `||`",
    "is": "write `==`",
    "if": "write `condition ? value : other`",
    "for": "write `list.exists(x, …)`, or `list.all(x, …)`",
    "like": "write `text.matches('…')`, or `text.contains('…')`",
    "contains": "write `text.contains('…')`",
    "matches": "write `text.matches('…')`",
    "startswith": "write `text.startsWith('…')`",
    "endswith": "write `text.endsWith('…')`",
    "~": "write `text.matches('…')`",
    "$": "write `params.name`, or `lists.name`",
    "#": "write comments as `// …`",
    "/": "is it a text? then quote it: `'…'`",
    **dict.fromkeys("“”‘’«»", "write straight quotes: `'…'`"),
}
"""By the unexpected word, or the one before it, in lower case."""
_OPERATORS: Final = {
    "??": "write `has(a.b) ? a.b : other`",
    "=~": _HELP_BY_WORD["~"],
    "<>": "write `!=`",
    "!==": "write `!=`",
    "=>": "write `>=`, or `list.exists(x, …)` for a condition on items",
}
_PATTERNS: Final = (
    (re.compile(r"\bis\s+not\b"), "write `!=`"),
    (re.compile(r"\bin\s*\([^()]*,"), "write a list in brackets: `x in ['a', 'b']`"),
    (re.compile(r"\[[^\[\]'\"]*:"), "write `text.substring(from, to)`"),
    (re.compile(r"\b[fF]['\"]"), "write `'text' + string(value)`"),
    (re.compile(r"\b[0-9]+_[0-9_]+"), "write numbers without `_`"),
)
"""Syntax of Python that ends at the unexpected word, or begins there."""
_VALUE_END: Final = re.compile(r"[\w\])}\"']\s+\Z")
_VALUE_START: Final = re.compile(r"[\w(\[{\"']")
"""Two values in a row, with nothing between them."""
_POLICY_DURATION: Final = re.compile(r"(?<![\w.])([0-9]{1,9})(ms|[smhd])\Z")
"""A duration as policies write it outside CEL."""
_LONGEST_OPERATOR: Final = 3


class UnexpectedWord(NamedTuple):
    """The word to report, where it begins, and what to write instead."""

    start: int
    word: str
    help: str | None


def explain_unexpected(source: str, start: int, word: str) -> UnexpectedWord:
    """Explain why the parser stopped at a word of `source`; another one may be to blame."""
    help_ = _HELP_BY_WORD.get(word.casefold())
    for operator, meant in _OPERATORS.items():
        first = max(start - _LONGEST_OPERATOR + 1, 0)
        if source.find(operator, first, start + _LONGEST_OPERATOR) >= 0:
            help_ = meant
    for pattern, meant in _PATTERNS:
        if any(one.start() <= start < one.end() for one in pattern.finditer(source)):
            help_ = meant
    if word == "not" and source[start:].split()[1:2] == ["in"]:
        help_ = "write `!(x in list)`"
    before = source[:start].split()
    previous = before[-1].casefold() if before else ""
    if help_ is None and previous.isalpha() and previous in _HELP_BY_WORD:
        # `not x`: the parser reads `not` as a name and fails at the next token.
        word = before[-1]
        return UnexpectedWord(source.rindex(word, 0, start), word, _HELP_BY_WORD[previous])
    if help_ is None and _VALUE_END.search(source, 0, start) and _VALUE_START.match(word):
        help_ = "is a comma or an operator missing before it?"
    duration = _POLICY_DURATION.search(source, 0, start + len(word)) if help_ is None else None
    if duration is not None:
        count, unit = duration.groups()
        written = f"{24 * int(count)}h" if unit == "d" else duration[0]
        help_ = f"write `duration('{written}')`"
    return UnexpectedWord(start, word, help_)

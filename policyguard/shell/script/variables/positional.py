"""`$1`, `$2` and so on, as far as their values are known: what reads them, and what moves them."""

from __future__ import annotations

from collections.abc import Sequence

from policyguard.shell.command_line import MANY
from policyguard.shell.words import is_one_word, is_static

Positional = list[str]
"""`$0` and the words that follow. A new list says that they may have changed."""


def choose(positional: Positional, first: int, last: int | None = None) -> Positional | None:
    """Return the words from `$first` on, before `$last`; None if they are not known.

    What stands behind a word that may be several, or none, has no number that is known.
    """
    if not all(map(is_one_word, positional[1:first])):
        return None
    return positional[first:last]


def move(positional: Positional | None, program: str, words: Sequence[str]) -> Positional | None:
    """Return what `$1`, `$2` and so on are after a command of one of `MOVERS`."""
    if program == "set":
        return _set(positional, words)
    if program == "shift" and positional is not None:
        return _shift(positional, words)
    return None


def _shift(positional: Positional, words: Sequence[str]) -> Positional | None:
    count = words[0] if words else "1"
    if len(words) > 1 or not (count.isascii() and count.isdigit()) or len(count) > 4:
        return None
    rest = choose(positional, 1 + int(count))
    if rest is None:
        return None
    if len(positional) <= int(count):
        return positional  # bash refuses to shift by more than there are
    return [positional[0], *rest]


def _set(positional: Positional | None, words: Sequence[str]) -> Positional | None:
    """Read the options of `set`; what stands behind them becomes `$1`, `$2` and so on."""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if not is_static(word) or word in ("-", "+"):
            return None
        if word[:1] not in ("-", "+"):
            break
        at += 1 + word.count("o")  # `-o pipefail`, `-eo pipefail`
    else:
        return positional
    return [positional[0] if positional else MANY, *words[at:]]

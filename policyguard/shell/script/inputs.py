"""What a statement is given from outside: its input, and what stands behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from policyguard.shell.command_line import Redirect

if TYPE_CHECKING:
    from policyguard.shell.script.syntax_tree import Node


class Input(msgspec.Struct, frozen=True):
    """What a statement reads: the output of commands, a text, or nothing that is known of."""

    sources: tuple[int, ...] = ()
    text: str | None = None
    words: tuple[int, ...] = ()
    """Commands whose output became words of the command."""
    is_file: bool = False
    """Whether it is a file of which nothing is known."""

    def __bool__(self) -> bool:
        return bool(self.sources) or self.text is not None or self.is_file


NOTHING = Input()
UNKNOWN_FILE = Input(is_file=True)


class Tail(msgspec.Struct, frozen=True):
    """What stands behind a statement and belongs to its last command."""

    redirects: tuple[Redirect, ...] = ()
    words: tuple[str, ...] = ()
    given: Input = NOTHING
    """What the command reads instead of what a pipe gives it."""
    unread: tuple[Node, ...] = ()
    """Redirections of which the words are read when that command runs."""

    def join(self, more: Tail) -> Tail:
        """Return both, this one first."""
        given = more.given or self.given
        redirects, words = self.redirects + more.redirects, self.words + more.words
        return Tail(redirects, words, given, self.unread + more.unread)


NO_TAIL = Tail()

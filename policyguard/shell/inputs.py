"""What a command reads from its standard input."""

from __future__ import annotations

import msgspec


class Input(msgspec.Struct, frozen=True):
    """What a statement reads: the output of commands, a text, or nothing that is known of."""

    sources: tuple[int, ...] = ()
    text: str | None = None
    words: tuple[int, ...] = ()
    """Commands whose output became words of the command."""

    def __bool__(self) -> bool:
        return bool(self.sources) or self.text is not None


NOTHING = Input()

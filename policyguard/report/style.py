"""How a text report looks: plain, or with the colours and blocks of a terminal."""

from __future__ import annotations

_WIDTH = 20
_EIGHTHS = "▏▎▍▌▋▊▉"


class Style:
    """Plain text, as files and pipes want it."""

    def strong(self, text: str) -> str:
        """A heading."""
        return text

    def bad(self, text: str) -> str:
        """What a reader must see first."""
        return text

    def warning(self, text: str) -> str:
        """What a reader must know."""
        return text

    def faint(self, text: str) -> str:
        """What counts less."""
        return text

    def bar(self, share: float) -> str:
        """A share from 0 to 1 as a bar."""
        full = min(_WIDTH, round(share * _WIDTH))
        # What there is at all can be seen.
        full = max(full, 1) if share > 0 else 0
        return "#" * full + "." * (_WIDTH - full)


class Coloured(Style):
    """For a terminal that a person looks at."""

    def strong(self, text: str) -> str:
        """Bold."""
        return f"\x1b[1m{text}\x1b[0m"

    def bad(self, text: str) -> str:
        """Red."""
        return f"\x1b[31m{text}\x1b[0m"

    def warning(self, text: str) -> str:
        """Yellow."""
        return f"\x1b[33m{text}\x1b[0m"

    def faint(self, text: str) -> str:
        """Dim."""
        return f"\x1b[2m{text}\x1b[0m"

    def bar(self, share: float) -> str:
        """Blocks, to an eighth of a letter."""
        eighths = min(_WIDTH * 8, round(share * _WIDTH * 8))
        eighths = max(eighths, 1) if share > 0 else 0
        full, rest = divmod(eighths, 8)
        text = "█" * full + (_EIGHTHS[rest - 1] if rest else "")
        return f"\x1b[36m{text}\x1b[0m" + " " * (_WIDTH - len(text))


PLAIN = Style()
COLOURED = Coloured()

"""Styles of text reports: plain, or with terminal colours."""

from __future__ import annotations

_WIDTH = 20
_EIGHTHS = "▏▎▍▌▋▊▉"


class Style:
    """Plain text, for files and pipes."""

    def strong(self, text: str) -> str:
        """Style a heading."""
        return text

    def bad(self, text: str) -> str:
        """Style the most important text."""
        return text

    def warning(self, text: str) -> str:
        """Style a warning."""
        return text

    def faint(self, text: str) -> str:
        """Style less important text."""
        return text

    def bar(self, share: float) -> str:
        """Draw a share from 0 to 1 as a bar."""
        full = min(_WIDTH, round(share * _WIDTH))
        # Any share above 0 is visible.
        full = max(full, 1) if share > 0 else 0
        return "#" * full + "." * (_WIDTH - full)


class Coloured(Style):
    """Coloured text, for terminals."""

    def strong(self, text: str) -> str:
        """Return bold text."""
        return f"\x1b[1m{text}\x1b[0m"

    def bad(self, text: str) -> str:
        """Return red text."""
        return f"\x1b[31m{text}\x1b[0m"

    def warning(self, text: str) -> str:
        """Return yellow text."""
        return f"\x1b[33m{text}\x1b[0m"

    def faint(self, text: str) -> str:
        """Return dim text."""
        return f"\x1b[2m{text}\x1b[0m"

    def bar(self, share: float) -> str:
        """Draw a bar of block characters, in eighths."""
        eighths = min(_WIDTH * 8, round(share * _WIDTH * 8))
        eighths = max(eighths, 1) if share > 0 else 0
        full, rest = divmod(eighths, 8)
        text = "█" * full + (_EIGHTHS[rest - 1] if rest else "")
        return f"\x1b[36m{text}\x1b[0m" + " " * (_WIDTH - len(text))


PLAIN = Style()
COLOURED = Coloured()

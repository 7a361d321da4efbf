"""Styles of text reports: plain, or with terminal colours."""

from __future__ import annotations

_WIDTH = 20
_EIGHTHS = "▏▎▍▌▋▊▉"


class Style:
    """Coloured text, for terminals; or plain text, for files and pipes."""

    def __init__(self, *, coloured: bool) -> None:
        self._coloured = coloured

    def strong(self, text: str) -> str:
        """Style a heading."""
        return self._with_code(1, text)

    def bad(self, text: str) -> str:
        """Style the most important text."""
        return self._with_code(31, text)

    def warning(self, text: str) -> str:
        """Style a warning."""
        return self._with_code(33, text)

    def faint(self, text: str) -> str:
        """Style less important text."""
        return self._with_code(2, text)

    def bar(self, share: float) -> str:
        """Draw a share from 0 to 1 as a bar; any share above 0 is visible."""
        units = 8 if self._coloured else 1
        length = max(min(_WIDTH * units, round(share * _WIDTH * units)), int(share > 0))
        full, rest = divmod(length, units)
        if not self._coloured:
            return "#" * full + "." * (_WIDTH - full)
        text = "█" * full + (_EIGHTHS[rest - 1] if rest else "")
        return self._with_code(36, text) + " " * (_WIDTH - len(text))

    def _with_code(self, code: int, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured else text


PLAIN = Style(coloured=False)
COLOURED = Style(coloured=True)

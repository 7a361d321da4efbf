"""Escape untrusted text for its output format.

All output may end up in a GitHub Actions log, whose runner executes `##[name]` anywhere in a line,
and `::name::` at its beginning.
"""

from __future__ import annotations

import json
import re
from typing import Any

_IN_JSON = re.compile(r"[^\n -~]|(?<=#)#(?=\[)")
_COMMAND = re.compile(r"(?<=#)(?=#\[)|(?<!\S:)(?<=:)(?=:)")


def for_terminal(text: str, max_length: int | None = None) -> str:
    """Return text as one truncated line without control characters.

    GitHub Actions commands are broken up with blanks.
    """
    safe = "".join(c if c.isprintable() else "�" if c != "\n" else " " for c in text)
    safe = _COMMAND.sub(" ", safe)
    return safe if max_length is None or len(safe) <= max_length else safe[: max_length - 1] + "…"


def for_markdown(text: str, max_length: int | None = None) -> str:
    """Return text as one line without active Markdown or HTML.

    Put it inside `<code>`, where GitHub does not link mentions and references.
    """
    return "".join(
        c if c.isalnum() or c in _HARMLESS else f"&#{ord(c)};"
        for c in for_terminal(text, max_length)
    ).replace("www.", "www&#46;")


_HARMLESS = " -/,.;%?…"
"""Characters without a meaning in the middle of a Markdown line."""


def for_json(text: str) -> str:
    """Return equivalent JSON with control characters and GitHub Actions commands escaped."""
    return _IN_JSON.sub(_json_escape, text)


def json_document(value: Any) -> str:
    """Return plain values as printable JSON."""
    return for_json(json.dumps(value, indent=2))


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def for_xml(text: str) -> str:
    """Return text without control characters, most of which XML 1.0 cannot represent."""
    return "\n".join(for_terminal(line) for line in text.split("\n"))


def for_github(text: str) -> str:
    """Escape the message of a GitHub Actions command."""
    clean = "".join(c if c.isprintable() or c == "\n" else "�" for c in text)
    return clean.replace("%", "%25").replace("\n", "%0A")


def for_github_property(text: str) -> str:
    """Escape a property value of a GitHub Actions command."""
    return for_github(text).replace(":", "%3A").replace(",", "%2C")

"""Untrusted text, made fit for where it is shown.

What is printed may be the log of GitHub Actions, whose runner takes `##[name]` for a command
wherever it stands, and `::name::` where a line begins with it, blanks aside.
"""

from __future__ import annotations

import json
import re
from typing import Any

_IN_JSON = re.compile(r"[^\n -~]|(?<=#)#(?=\[)")
_COMMAND = re.compile(r"(?<=#)(?=#\[)|(?<!\S:)(?<=:)(?=:)")


def for_terminal(text: str, max_length: int | None = None) -> str:
    """One line without control characters (which could move the cursor or forge lines), cut.

    What the runner of GitHub Actions would take for a command gets a blank between its signs.
    """
    safe = "".join(c if c.isprintable() else "�" if c != "\n" else " " for c in text)
    safe = _COMMAND.sub(" ", safe)
    return safe if max_length is None or len(safe) <= max_length else safe[: max_length - 1] + "…"


def for_markdown(text: str, max_length: int | None = None) -> str:
    """One line that Markdown shows as it is: no HTML, link, code, mention or table comes of it.

    To be put inside `<code>`, where GitHub looks for no mentions or references.
    """
    return "".join(
        c if c.isalnum() or c in _HARMLESS else f"&#{ord(c)};"
        for c in for_terminal(text, max_length)
    ).replace("www.", "www&#46;")


_HARMLESS = " -/,.;%?…"
"""What means nothing to Markdown in the middle of a line."""


def for_json(text: str) -> str:
    """JSON, with all that would act where it is shown escaped as JSON escapes it: the same JSON."""
    return _IN_JSON.sub(_json_escape, text)


def json_document(value: Any) -> str:
    """Plain values as JSON that is fit to be printed."""
    return for_json(json.dumps(value, indent=2))


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def for_xml(text: str) -> str:
    """Lines of text. XML 1.0 has no way to write most control characters, not even references."""
    return "\n".join(for_terminal(line) for line in text.split("\n"))


def for_github(text: str) -> str:
    """What stands behind the `::` of a command of GitHub Actions."""
    clean = "".join(c if c.isprintable() or c == "\n" else "�" for c in text)
    return clean.replace("%", "%25").replace("\n", "%0A")


def for_github_property(text: str) -> str:
    """What stands behind the `=` of a property of such a command."""
    return for_github(text).replace(":", "%3A").replace(",", "%2C")

"""HTML as an element tree, whose writer escapes every text.

No code in this package builds markup from strings.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from policyguard.report.escape import for_terminal

Element = ET.Element
Child = Element | str | None

_OWN_LINE = frozenset({"details", "div", "h2", "h3", "li", "ol", "p", "section", "tr", "ul"})
"""Elements followed by a line break, so that the source can be read and compared."""


def element(tag: str, /, *children: Child, **attributes: str | None) -> Element:
    """Build an element. Children and attributes that are None are left out.

    `_` in an attribute's name stands for `-`; a trailing one is dropped (`class_`). Control and
    bidirectional formatting characters are replaced in every text.
    """
    cleaned = {
        name.rstrip("_").replace("_", "-"): for_terminal(value)
        for name, value in attributes.items()
        if value is not None
    }
    made = ET.Element(tag, cleaned)
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif child is not None and last is None:
            made.text = (made.text or "") + for_terminal(child)
        elif child is not None and last is not None:
            last.tail = (last.tail or "") + for_terminal(child)
    if tag in _OWN_LINE:
        made.tail = "\n"
    return made


def untrusted(text: str, max_length: int = 120) -> Element:
    """Build a truncated text from a recording or policy, with its own text direction."""
    return element("bdi", _truncate(text, max_length))


def code(text: str, max_length: int = 120) -> Element:
    """Build a truncated name, argument or error."""
    return element("code", _truncate(text, max_length))


def stylesheet(css: str) -> Element:
    """Build our stylesheet, the only text that is not escaped."""
    made = ET.Element("style")
    made.text = css
    return made


def document(root: Element) -> str:
    """Serialize the page."""
    return "<!DOCTYPE html>\n" + ET.tostring(root, encoding="unicode", method="html")


def _truncate(text: str, max_length: int) -> str:
    # Avoids cleaning the whole of a very long text.
    return for_terminal(text[: max_length + 1], max_length)

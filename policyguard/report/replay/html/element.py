"""Markup as a tree, so that a text cannot become markup: the tree's writer escapes every text.

Nothing in this folder puts markup together out of strings.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from policyguard.report.escape import for_terminal

Element = ET.Element
Child = Element | str | None

_OWN_LINE = frozenset({"details", "div", "h2", "h3", "li", "ol", "p", "section", "tr", "ul"})
"""Elements that a line ends after, for whoever reads or compares the source."""


def element(tag: str, /, *children: Child, **attributes: str | None) -> Element:
    """An element. None is left out, as a child and as an attribute.

    `_` in an attribute's name stands for `-`, and one at its end for nothing (`class_`). Control
    characters and those that turn the direction of writing are replaced in every text.
    """
    told = {
        name.rstrip("_").replace("_", "-"): for_terminal(value)
        for name, value in attributes.items()
        if value is not None
    }
    made = ET.Element(tag, told)
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
    """A text out of a recording or a policy, cut; its direction of writing ends where it ends."""
    return element("bdi", _cut(text, max_length))


def code(text: str, max_length: int = 120) -> Element:
    """The same, of what is no prose: names, arguments, errors."""
    return element("code", _cut(text, max_length))


def stylesheet(css: str) -> Element:
    """A stylesheet of our own, the one text that is written as it is."""
    made = ET.Element("style")
    made.text = css
    return made


def document(root: Element) -> str:
    """The whole page."""
    return "<!DOCTYPE html>\n" + ET.tostring(root, encoding="unicode", method="html")


def _cut(text: str, most: int) -> str:
    # What is far too long is not looked at as a whole.
    return for_terminal(text[: most + 1], most)

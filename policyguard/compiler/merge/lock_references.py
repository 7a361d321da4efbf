"""What a locked entry relies on: names that it reads, and how calls are read for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    descend,
    get_child,
)

KeyPath = tuple[str, ...]

_NAMES = re.compile(r"\b(lists|params|tags|mark)\s*\.\s*(\w+)")
_PATTERNS = re.compile(r"""\bfinds\(\s*r?["']([^"']*)["']""")
_READS_CLASS = re.compile(r"\bcall\.class(?:es)?\b")
_REFERENCE = re.compile(r"\$([A-Za-z_][\w-]*)")
_SECTIONS = {"lists": "lists", "params": "params", "tags": "tags", "mark": "marks"}
_CLASSES: KeyPath = ("classify", "classes")
_SHELL: KeyPath = ("classify", "shell")
_READERS: tuple[tuple[re.Pattern[str], tuple[KeyPath, ...]], ...] = (
    (re.compile(r"\b(?:commands|call\.command|paths|call\.paths|hosts|call\.urls)\b"), (_SHELL,)),
    (re.compile(r"\b(?:paths|call\.paths)\b"), (("classify", "paths"), ("classify", "folder"))),
    (re.compile(r"\b(?:hosts|call\.urls)\b"), (("classify", "urls"),)),
    (re.compile(r"\b(?:targets|target)\b"), (("classify", "targets"),)),
    (re.compile(r"\bapproval\b"), (("classify", "fingerprint"),)),
)
"""Words of an entry, and the settings by which what they name is read in a call."""
_OF_LIMITS: tuple[KeyPath, ...] = (
    ("classify", "fingerprint"),
    ("classify", "likeness"),
    ("classify", "state_changing"),
    ("outcomes",),
)
"""When two calls are the same, what changes something and what has failed."""
_BOUNDS = ("window_entries", "budget_keys", "in_flight", "given_up", "unreported")
"""Bounds beyond which limits and budgets forget calls."""


def find_references(
    path: KeyPath, node: Node, merged: MappingNode
) -> Iterator[tuple[KeyPath, bool]]:
    """Yield the paths of all that an entry relies on, and whether each may not be set anew either.

    Also what that relies on in turn.
    """
    seen: set[KeyPath] = set()
    pending = [(path, node)]
    while pending:
        own_path, value = pending.pop()
        for found, is_strict in _direct_references(own_path, value):
            if found in seen:
                continue
            seen.add(found)
            target, rest = descend(merged, found)
            if is_strict or not rest or found[:-1] in (_CLASSES, ("signatures",)):
                yield found, is_strict
            if not rest and found[0] in ("lists", "patterns", "marks"):
                pending.append((found, target))


def _direct_references(path: KeyPath, node: Node) -> Iterator[tuple[KeyPath, bool]]:
    texts = list(_texts(node))
    for text in texts:
        for section, name in _NAMES.findall(text):
            yield (_SECTIONS[section], name), False
        for name in _PATTERNS.findall(text):
            yield ("patterns", name), False
        reference = _REFERENCE.fullmatch(text)
        if reference is not None:
            yield ("params", reference[1]), False
            yield ("lists", reference[1]), False
        for word, settings in _READERS:
            if word.search(text):
                yield from ((setting, False) for setting in settings)
    if path[0] == "limits":
        yield from ((setting, True) for setting in _OF_LIMITS)
    elif any("outcome" in text for text in texts):
        yield ("outcomes",), True
    if path[0] in ("limits", "budgets"):
        yield from ((("bounds", name), True) for name in _BOUNDS)
    if get_child(node, "finds") is not None:
        yield ("patterns",), False
    signature = get_child(node, "signature")
    if isinstance(signature, ScalarNode):
        yield ("signatures", signature.text), False
    yield from ((found, False) for found in _class_references(path, node, texts))


def _class_references(path: KeyPath, node: Node, texts: Iterable[str]) -> Iterator[KeyPath]:
    """Yield the classes without which an entry covers fewer calls."""
    if path[:2] == ("limits", "classes"):
        yield (*_CLASSES, path[2])
    classes = get_child(node, "classes")
    if isinstance(classes, SequenceNode):
        names = [item.text for item in classes.items if isinstance(item, ScalarNode)]
        has_glob = any("*" in name or "?" in name for name in names)
        yield from [_CLASSES] if has_glob else [(*_CLASSES, name) for name in names]
    if any(_READS_CLASS.search(text) for text in texts):
        yield _CLASSES


def _texts(node: Node) -> Iterator[str]:
    """Yield all keys and texts of an entry, without the parts that decide nothing."""
    if isinstance(node, ScalarNode):
        yield node.text
    elif isinstance(node, SequenceNode):
        for item in node.items:
            yield from _texts(item)
    else:
        for key, value in node.entries:
            if key.text not in _DESCRIPTIVE:
                yield key.text
                yield from _texts(value)


_DESCRIPTIVE = frozenset(
    {"message", "instead", "examples", "owner", "severity", "docs", "labels", "reason"}
)


def list_class_uses(node: Node) -> tuple[frozenset[str], bool]:
    """Return the classes that exempt a call from an entry, and whether its CEL reads any."""
    outside = descend(node, ("classes", "outside"))
    items = outside[0].items if not outside[1] and isinstance(outside[0], SequenceNode) else ()
    names = frozenset(item.text for item in items if isinstance(item, ScalarNode))
    return names, any(_READS_CLASS.search(text) for text in _texts(node))

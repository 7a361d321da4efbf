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
from policyguard.model.effect import Effect

KeyPath = tuple[str, ...]

_NAMES = re.compile(
    r"""\b(lists|params|tags|mark)\s*(?:\.\s*(?P<field>\w+)|\[\s*r?(["'])(?P<key>[^"']*)\3)"""
)
_PATTERNS = re.compile(r"""\bfinds\(\s*r?["']([^"']*)["']""")
_READS_CLASS = re.compile(r"\bcall\.class(?:es)?\b")
_REFERENCE = re.compile(r"\$([A-Za-z_][\w-]*)")
_SECTIONS = {"lists": "lists", "params": "params", "tags": "tags", "mark": "marks"}
_CLASSES: KeyPath = ("classify", "classes")
_SHELL: KeyPath = ("classify", "shell")
_PATHS: tuple[KeyPath, ...] = tuple(
    ("classify", key) for key in ("paths", "globs", "patches", "folder")
)
_READERS: tuple[tuple[re.Pattern[str], tuple[KeyPath, ...]], ...] = (
    (re.compile(r"\b(?:commands|call\.command|paths|call\.paths|hosts|call\.urls)\b"), (_SHELL,)),
    (re.compile(r"\b(?:paths|call\.paths)\b"), _PATHS),
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
_OF_PINS = ("lock", "new", "changed", "removed", "found", "finds", "mode")
"""What a layer that pins relies on, also where it leaves it at its default."""
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
        for found in _NAMES.finditer(text):
            yield (_SECTIONS[found[1]], found["field"] or found["key"]), False
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
    if path[0] == "pins":
        yield from ((("pins", name), True) for name in _OF_PINS)
    if path == ("pins", "finds") or any(
        get_child(part, "finds") is not None for part in list_selectors(node)
    ):
        yield ("patterns",), False
    signature = get_child(node, "signature")
    if isinstance(signature, ScalarNode):
        yield ("signatures", signature.text), False
    yield from ((found, False) for found in _class_references(path, node, texts))


def _class_references(path: KeyPath, node: Node, texts: Iterable[str]) -> Iterator[KeyPath]:
    """Yield the classes without which an entry covers fewer calls."""
    if path[:2] == ("limits", "classes"):
        yield (*_CLASSES, path[2])
    for part in list_selectors(node):
        names = _scalars(get_child(part, "classes"))
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


def list_selectors(node: Node) -> Iterator[Node]:
    """Yield the parts of an entry that select calls: itself, its cases, the events of a mark."""
    yield node
    for key in ("cases", "set", "clear"):
        yield from _parts(get_child(node, key))


def list_exempting_classes(path: KeyPath, node: Node) -> tuple[frozenset[str], bool]:
    """Return globs of the classes that exempt a call from an entry, and whether CEL reads any.

    Those that it leaves out; those of a case with a stricter one after it; those that set a mark
    which opens a way, or clear one that closes it.
    """
    names = [name for part in list_selectors(node) for name in _left_out(part)]
    names += _classes_of_marks(node) if path[0] == "marks" else _classes_of_cases(node)
    return frozenset(names), any(_READS_CLASS.search(text) for text in _texts(node))


def _classes_of_marks(node: Node) -> list[str]:
    kind = "clear" if _scalars(get_child(node, "on_error")) == ["set"] else "set"
    return [
        name
        for part in _parts(get_child(node, kind))
        for name in _scalars(get_child(part, "classes"))
    ]


def _classes_of_cases(node: Node) -> list[str]:
    names: list[str] = []
    strictest = _effect(get_child(node, "otherwise"), Effect.ALLOW)
    for case in reversed(_parts(get_child(node, "cases"))):
        effect = _effect(get_child(case, "effect"), Effect.BLOCK)
        if effect < strictest:
            names += _scalars(get_child(case, "classes"))
        strictest = max(effect, strictest)
    return names


def _parts(node: Node | None) -> tuple[Node, ...]:
    """Return the items of a list, or what stands alone in place of one."""
    if isinstance(node, SequenceNode):
        return node.items
    return (node,) if isinstance(node, MappingNode) else ()


def _scalars(node: Node | None) -> list[str]:
    items = node.items if isinstance(node, SequenceNode) else (node,)
    return [item.text for item in items if isinstance(item, ScalarNode)]


def _left_out(node: Node) -> list[str]:
    classes = get_child(node, "classes")
    return _scalars(get_child(classes, "outside")) if classes is not None else []


def _effect(node: Node | None, default: Effect) -> Effect:
    text = node.text if isinstance(node, ScalarNode) else ""
    return next((effect for effect in Effect if effect.value == text), default)

"""What changed in a server's tools since they were pinned, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from policyguard.model.pins import PartChange, ToolChange
from policyguard.pins.definition import canonical_json
from policyguard.pins.lock import PinnedServer, PinnedTool

_MAX_DEPTH = 16
"""How deep parameters are compared one by one; below it, as a whole."""


def compare_servers(
    name: str, old: PinnedServer | None, new: PinnedServer | None
) -> list[ToolChange]:
    """Return what differs between two states of a server; None: it has none of its tools."""
    before, after = (side.tools if side is not None else {} for side in (old, new))
    changes: list[ToolChange] = []
    if old is not None and new is not None:
        parts = tuple(
            PartChange(part, "changed", was, now)
            for part, was, now in (
                ("name", old.name, new.name),
                ("version", old.version, new.version),
            )
            if was != now
        )
        if parts:
            changes.append(ToolChange(name, "", "changed", parts))
    for tool in sorted(before.keys() | after.keys()):
        was, now = before.get(tool), after.get(tool)
        if was is None or now is None:
            changes.append(ToolChange(name, tool, "new" if was is None else "removed"))
        elif was.sha256 != now.sha256:
            changes.append(ToolChange(name, tool, "changed", tuple(_compare_tools(was, now))))
    return changes


def _compare_tools(old: PinnedTool, new: PinnedTool) -> Iterator[PartChange]:
    for part in ("title", "description"):
        if old.sha256.get(part) != new.sha256.get(part):
            yield _compare_texts(part, old.definition.get(part), new.definition.get(part))
    for part, word in (("inputSchema", "parameter"), ("outputSchema", "result")):
        if old.sha256.get(part) != new.sha256.get(part):
            sides = (one.definition.get(part) for one in (old, new))
            yield from _compare_schemas(word, "", *sides, depth=0)
    if old.sha256.get("annotations") != new.sha256.get("annotations"):
        yield from _compare_maps(
            "annotation",
            old.definition.get("annotations"),
            new.definition.get("annotations"),
        )


def _compare_texts(part: str, old: Any, new: Any) -> PartChange:
    before, after = (_to_text(value) for value in (old, new))
    word = "added" if before is None else "removed" if after is None else "changed"
    return PartChange(part, word, before, after)


def _compare_maps(word: str, old: Any, new: Any) -> Iterator[PartChange]:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        yield _compare_texts(f"{word}s", old, new)
        return
    for key in [*old, *(key for key in new if key not in old)]:
        if key not in new or key not in old or not _is_same(old[key], new[key]):
            yield _compare_texts(f"{word} `{key}`", old.get(key), new.get(key))


def _compare_schemas(
    word: str, path: str, old: Any, new: Any, *, depth: int
) -> Iterator[PartChange]:
    """Compare two schemas: parameter by parameter, then what else they say."""
    part = f"{word} `{path}`" if path else f"{word}s"
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or depth > _MAX_DEPTH:
        yield _compare_texts(part, old, new)
        return
    before, after = _properties(old), _properties(new)
    needed, needs = _required(old), _required(new)
    for name in [*before, *(name for name in after if name not in before)]:
        inner = f"{path}.{name}" if path else name
        shown = f"{word} `{inner}`"
        if name not in after:
            yield PartChange(shown, "removed", _to_text(before[name]), None)
            continue
        if name not in before:
            text = "added, required" if name in needs else "added"
            yield PartChange(shown, text, None, _to_text(after[name]))
            continue
        if not _is_same(before[name], after[name]):
            yield from _compare_schemas(word, inner, before[name], after[name], depth=depth + 1)
        if (name in needed) != (name in needs):
            yield PartChange(shown, "now required" if name in needs else "no longer required")
    are_maps = all(isinstance(side.get("properties", {}), Mapping) for side in (old, new))
    are_named = (needed | needs) <= before.keys() | after.keys()
    for key in [*old, *(key for key in new if key not in old)]:
        if (key == "properties" and are_maps) or (key == "required" and are_named):
            continue
        if key in old and key in new and _is_same(old[key], new[key]):
            continue
        if key == "items":
            items = f"{path}[]"
            yield from _compare_schemas(word, items, old.get(key), new.get(key), depth=depth + 1)
        else:
            yield _compare_texts(f"{part}, {key}", old.get(key), new.get(key))


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def _required(schema: Mapping[str, Any]) -> set[str]:
    found = schema.get("required")
    return {name for name in found if isinstance(name, str)} if isinstance(found, list) else set()


def _is_same(one: Any, other: Any) -> bool:
    return canonical_json(one) == canonical_json(other)


def _to_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return canonical_json(value)

"""What a layer may not do to locked entries below it: override, disable or loosen them."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.selectors.selector import (
    compile_glob,
    tool_glob_specificity,
    tool_globs_overlap,
)
from policyguard.compiler.merge.disable import resolve_disabled
from policyguard.compiler.merge.lock_references import list_exempting_classes
from policyguard.compiler.merge.locks import (
    KeyPath,
    Lock,
    Locks,
    are_nested,
    entry_id,
    replaced_values,
    value_at,
)
from policyguard.engines.yaml_tree import (
    MappingNode,
    ScalarNode,
    SequenceNode,
    descend,
    get_child,
    to_plain,
)
from policyguard.model.diagnostic import Diagnostic

_HINT = "remove it; a later layer may add entries of its own, or have the layer below changed"
_ADDED_ITEMS = (("classify", "classes"), ("outcomes", "envelope"))
"""Lists whose items have no id: a layer only adds to them."""
_SHELL = ("classify", "shell")
_LOOSE_SETTINGS = {"mode": "observe", "on_internal_error": "allow"}
"""Settings of the whole policy that let calls run which a locked entry refuses."""
_REPLACED_BY_POLLING = ("repeat", "cycle", "stale")


def check_locks(layer: MappingNode, inherited: MappingNode, locks: Locks) -> Iterator[Diagnostic]:
    """Report what a layer does to locked entries of `inherited`."""
    if not locks:
        return
    yield from _check_disabled(layer, inherited, locks)
    yield from _check_overrides(layer, inherited, locks)
    yield from _check_settings(layer, inherited, locks)
    yield from _check_limits(layer, locks)
    yield from _check_classes(layer, inherited, locks)
    yield from _check_blame(layer, locks)


def _error(node: ScalarNode, message: str) -> Diagnostic:
    return node.source.diagnostic("reference/locked", message, node.span, hint=_HINT)


def _own_locks(locks: Locks) -> Iterator[tuple[KeyPath, Lock]]:
    """Yield the entries that are locked themselves."""
    return ((path, lock) for path, lock in locks.items() if not lock.user)


def _check_disabled(
    layer: MappingNode, inherited: MappingNode, locks: Locks
) -> Iterator[Diagnostic]:
    section = layer.get("disable")
    for key in section.entries if isinstance(section, MappingNode) else ():
        names = resolve_disabled(inherited, key[0].text)
        for path, lock in locks.items():
            full = entry_id(path)
            if any(_are_nested_ids(full, name) for name in names):
                yield _error(key[0], f"cannot disable this: {lock.explain(path)}")
                break


def _are_nested_ids(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _check_overrides(
    layer: MappingNode, inherited: MappingNode, locks: Locks
) -> Iterator[Diagnostic]:
    for path, key, value in replaced_values(layer):
        old = value_at(inherited, path)
        is_added = path[:2] == _SHELL and isinstance(value, SequenceNode)
        if is_added or (old is not None and to_plain(old) == to_plain(value)):
            continue
        replaces_all = path == (*_SHELL, "replace") and to_plain(value) is True
        for other, lock in locks.items():
            is_item = path[:-1] in _ADDED_ITEMS and not lock.is_strict
            touches = are_nested(path[:2] if replaces_all else path, other)
            if touches and not is_item and (old is not None or lock.is_strict or replaces_all):
                yield _error(key, f"cannot change this: {lock.explain(other)}")
                break


def _check_settings(
    layer: MappingNode, inherited: MappingNode, locks: Locks
) -> Iterator[Diagnostic]:
    for name, loose in _LOOSE_SETTINGS.items():
        value, old = layer.get(name), inherited.get(name)
        is_new = old is None or to_plain(old) != loose
        if value is None or to_plain(value) != loose or not is_new or (name,) in locks:
            continue
        lock = next(lock for _, lock in _own_locks(locks))
        message = f"`{name}: {loose}` would loosen what is locked at {lock.place}"
        yield _error(layer.key_node(name), message)


def _check_limits(layer: MappingNode, locks: Locks) -> Iterator[Diagnostic]:
    """Report limits that would apply in place of a locked one, to some of its calls."""
    for path, key, value in replaced_values(layer):
        if path[0] != "limits" or path[-1] in ("locked", "mode"):
            continue
        for other, lock in _own_locks(locks):
            if other[0] == "limits" and other != path and _takes_over(path, value, other):
                message = f"`{entry_id(path)}` would replace a locked limit for some calls"
                yield _error(key, f"{message}: {lock.explain(other)}")
                break


def _takes_over(path: KeyPath, value: object, other: KeyPath) -> bool:
    """Whether a limit is looked up before another one, for calls of the other."""
    if path[-1] != other[-1]:
        is_off = isinstance(value, ScalarNode)
        if path[-1] != "polling" or other[-1] not in _REPLACED_BY_POLLING or is_off:
            return False
    level, wide = path[1:-1], other[1:-1]
    if wide == ("default",) or level == wide:
        return True
    if level == ("default",):
        return False
    if wide[0] == "classes":
        return level[0] == "tools"
    if level[0] == "classes" or not tool_globs_overlap(level[1], wide[1]):
        return False
    return tool_glob_specificity(level[1]) >= tool_glob_specificity(wide[1])


def _check_classes(
    layer: MappingNode, inherited: MappingNode, locks: Locks
) -> Iterator[Diagnostic]:
    """Report classes that would take calls out of a locked entry."""
    items = descend(layer, ("classify", "classes"))
    for item in items[0].items if not items[1] and isinstance(items[0], SequenceNode) else ():
        name = get_child(item, "class")
        if not isinstance(name, ScalarNode):
            continue
        for path, lock in locks.items():
            if lock.user and path[0] != "marks":
                continue
            if _exempts(name.text, path, inherited):
                message = f"the class `{name.text}` could exempt more calls"
                yield _error(name, f"{message}: {lock.explain(path)}")
                break


def _exempts(class_: str, path: KeyPath, inherited: MappingNode) -> bool:
    """Whether a call of one more class may not be covered by a locked entry any more."""
    if path[0] == "limits":
        at_class = value_at(inherited, ("limits", "classes", class_, path[-1]))
        changing = value_at(inherited, ("classify", "state_changing"))
        changes = isinstance(changing, ScalarNode) or (
            changing is not None and class_ in to_plain(changing)
        )
        return changes or (at_class is not None and path[1] == "default")
    node = value_at(inherited, path)
    if node is None:
        return False
    globs, reads_class = list_exempting_classes(path, node)
    return reads_class or any(compile_glob(glob)(class_) for glob in globs)


def _check_blame(layer: MappingNode, locks: Locks) -> Iterator[Diagnostic]:
    """Report what blames the harness for failures that a locked limit counts."""
    limit = next((item for item in _own_locks(locks) if item[0][0] == "limits"), None)
    if limit is None:
        return
    for section in ("signatures", "blame"):
        items = layer.get(section)
        for item in items.items if isinstance(items, SequenceNode) else ():
            blame = get_child(item, "blame")
            if isinstance(blame, ScalarNode) and blame.text == "harness":
                path, lock = limit
                message = "a failure that the harness is to blame for counts in fewer limits"
                yield _error(blame, f"{message}: {lock.explain(path)}")

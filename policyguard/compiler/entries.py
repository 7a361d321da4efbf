"""The ids of a policy's entries, and how `disable` takes entries away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policyguard.engines.yaml_tree import (
    Mapping,
    Node,
    Path,
    Scalar,
    Sequence,
    child,
    descend,
    without,
)
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quoted

_MAPS = (
    "params",
    "tags",
    "lists",
    "patterns",
    "marks",
    "budgets",
    "rules",
    "result_rules",
    "exceptions",
)
_LISTS = ("signatures", "blame")


def disable(
    inherited: Mapping, layer: Mapping, lost: Iterable[tuple[str, str]] = ()
) -> tuple[Mapping, list[Diagnostic]]:
    """Take away from `inherited` what `layer` disables.

    An id is written in full (`rules/no-push`, `limits/default/repeat`, `classes/poll`) or by a
    trailing part that only one entry has. `lost` are entries, with their sections, that were too
    broken to be inherited; to disable them is no mistake.
    """
    wanted = layer.get("disable")
    found: list[Diagnostic] = []
    if not isinstance(wanted, Mapping):
        return inherited, found
    known: dict[str, list[Path]] = {f"{section}/{name}": [] for section, name in lost}
    known |= _ids(inherited)
    drop: set[Path] = set()
    for key, _ in wanted.entries:
        full = [name for name in known if name == key.text or name.endswith(f"/{key.text}")]
        if key.text in known:
            full = [key.text]
        if not full:
            message = f"nothing that is inherited has the id {quoted(key.text)}"
            short = {name.rpartition("/")[2] for name in known}
            hint = did_you_mean(key.text, known) or did_you_mean(key.text, short)
            found.append(
                key.source.diagnostic("reference/unknown-id", message, key.span, hint=hint)
            )
        elif len(full) > 1:
            message = f"{quoted(key.text)} is the id of several entries"
            hint = "write one of " + ", ".join(f"`{name}`" for name in full)
            found.append(
                key.source.diagnostic("reference/ambiguous-id", message, key.span, hint=hint)
            )
        else:
            drop.update(known[full[0]])
    cut = without(inherited, frozenset(drop))
    return (cut if isinstance(cut, Mapping) else inherited), found


def names(tree: Node) -> set[tuple[str, str]]:
    """The names that a layer defines, each with its section: `("rules", "no-push")`.

    Classes stand in the section `classes`.
    """
    found: set[tuple[str, str]] = set()
    if isinstance(tree, Mapping):
        for section in _MAPS:
            entries = tree.get(section)
            found |= {(section, name) for name in (entries if isinstance(entries, Mapping) else ())}
        for section in _LISTS:
            found |= {(section, name) for _, name in _named(tree.get(section), "id")}
        found |= {("classes", name) for _, name in _named(_classes(tree), "class")}
    return found


def duplicates(layer: Mapping) -> Iterator[Diagnostic]:
    """Ids that a list of one layer gives twice; in a map a key could not stand twice."""
    for section in _LISTS:
        seen: set[str] = set()
        for place, name in _named(layer.get(section), "id"):
            if name in seen:
                node, _ = descend(layer, (section, place, "id"))
                message = f"the id `{name}` stands here a second time"
                yield node.source.diagnostic("reference/duplicate-id", message, node.span)
            seen.add(name)


def _ids(tree: Mapping) -> dict[str, list[Path]]:
    """Every entry's full id, and where it stands; several classes entries share theirs."""
    found: dict[str, list[Path]] = {}
    for section in _MAPS:
        entries = tree.get(section)
        if isinstance(entries, Mapping):
            for name in entries:
                found[f"{section}/{name}"] = [(section, name)]
    for section in _LISTS:
        for place, name in _named(tree.get(section), "id"):
            found[f"{section}/{name}"] = [(section, place)]
    for place, name in _named(_classes(tree), "class"):
        found.setdefault(f"classes/{name}", []).append(("classify", "classes", place))
    for level, path in _levels(tree.get("limits")):
        found.setdefault(f"limits/{level}", []).append(path[:-1])
        found[f"limits/{level}/{path[-1]}"] = [path]
    return found


def _classes(tree: Mapping) -> Node | None:
    classify = tree.get("classify")
    return child(classify, "classes") if classify is not None else None


def _named(entries: Node | None, key: str) -> Iterator[tuple[int, str]]:
    if isinstance(entries, Sequence):
        for place, entry in enumerate(entries.items):
            name = entry.get(key) if isinstance(entry, Mapping) else None
            if isinstance(name, Scalar):
                yield place, name.text


def _levels(limits: Node | None) -> Iterator[tuple[str, Path]]:
    """Every kind of every level: the level's name, and the path to the kind."""
    if not isinstance(limits, Mapping):
        return
    for group, value in limits.entries:
        if not isinstance(value, Mapping):
            continue
        if group.text == "default":
            yield from (("default", ("limits", "default", kind)) for kind in value)
        else:
            for name, level in value.entries:
                for kind in level if isinstance(level, Mapping) else ():
                    path = ("limits", group.text, name.text, kind)
                    yield f"{group.text}:{name.text}", path

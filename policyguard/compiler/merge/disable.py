"""Remove the entries that a layer disables; ids of a policy's entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    Path,
    ScalarNode,
    SequenceNode,
    descend,
    get_child,
    remove_paths,
)
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text

_MAP_SECTIONS = (
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
_LIST_SECTIONS = ("signatures", "blame")


def remove_disabled(
    inherited: MappingNode, layer: MappingNode, broken: Iterable[tuple[str, str]] = ()
) -> tuple[MappingNode, list[Diagnostic]]:
    """Remove from `inherited` the entries that `layer` disables.

    An id is full (`rules/no-push`, `limits/default/repeat`, `classes/poll`) or a trailing part
    that only one entry has. `broken` are entries, with their sections, that were removed as
    invalid; disabling them is not an error.
    """
    section = layer.get("disable")
    diagnostics: list[Diagnostic] = []
    if not isinstance(section, MappingNode):
        return inherited, diagnostics
    known: dict[str, list[Path]] = {f"{group}/{name}": [] for group, name in broken}
    known |= _collect_ids(inherited)
    drop: set[Path] = set()
    for key, _ in section.entries:
        full = _matching_ids(key.text, known)
        if not full:
            message = f"no inherited entry has the id {quote_text(key.text)}"
            short = {name.rpartition("/")[2] for name in known}
            hint = did_you_mean(key.text, known) or did_you_mean(key.text, short)
            diagnostics.append(
                key.source.diagnostic("reference/unknown-id", message, key.span, hint=hint)
            )
        elif len(full) > 1:
            message = f"{quote_text(key.text)} matches several entries"
            hint = "write one of " + ", ".join(f"`{name}`" for name in full)
            diagnostics.append(
                key.source.diagnostic("reference/ambiguous-id", message, key.span, hint=hint)
            )
        else:
            drop.update(known[full[0]])
    rest = remove_paths(inherited, frozenset(drop))
    return (rest if isinstance(rest, MappingNode) else inherited), diagnostics


def resolve_disabled(inherited: MappingNode, text: str) -> list[str]:
    """Return the full ids of the inherited entries that a key of `disable` means."""
    return _matching_ids(text, _collect_ids(inherited))


def _matching_ids(text: str, known: Iterable[str]) -> list[str]:
    """Return the id that is `text`, else those that end in it."""
    ids = list(known)
    return [text] if text in ids else [name for name in ids if name.endswith(f"/{text}")]


def collect_names(tree: Node) -> set[tuple[str, str]]:
    """Return the names that a layer defines, each with its section: `("rules", "no-push")`.

    The section of classes is `classes`.
    """
    return {(section, name) for section, name, _ in _named_entries(tree)}


def find_duplicate_ids(layer: MappingNode) -> Iterator[Diagnostic]:
    """Report ids that a list of one layer repeats. Maps cannot repeat a key."""
    for section in _LIST_SECTIONS:
        seen: set[str] = set()
        for index, name in _named_items(layer.get(section), "id"):
            if name in seen:
                node, _ = descend(layer, (section, index, "id"))
                message = f"duplicate id `{name}`"
                yield node.source.diagnostic("reference/duplicate-id", message, node.span)
            seen.add(name)


def _collect_ids(tree: MappingNode) -> dict[str, list[Path]]:
    """Return each entry's full id and paths; several entries may define one class."""
    found: dict[str, list[Path]] = {}
    for section, name, path in _named_entries(tree):
        others = found.get(f"classes/{name}", []) if section == "classes" else []
        found[f"{section}/{name}"] = [*others, path]
    for level, path in _limit_kinds(tree.get("limits")):
        found.setdefault(f"limits/{level}", []).append(path[:-1])
        found[f"limits/{level}/{path[-1]}"] = [path]
    return found


def _named_entries(tree: Node) -> Iterator[tuple[str, str, Path]]:
    """Yield the section, name and path of each entry; the section of classes is `classes`."""
    if not isinstance(tree, MappingNode):
        return
    for section in _MAP_SECTIONS:
        entries = tree.get(section)
        for name in entries if isinstance(entries, MappingNode) else ():
            yield section, name, (section, name)
    for section in _LIST_SECTIONS:
        for index, name in _named_items(tree.get(section), "id"):
            yield section, name, (section, index)
    classify = tree.get("classify")
    classes = get_child(classify, "classes") if classify is not None else None
    for index, name in _named_items(classes, "class"):
        yield "classes", name, ("classify", "classes", index)


def _named_items(entries: Node | None, key: str) -> Iterator[tuple[int, str]]:
    if isinstance(entries, SequenceNode):
        for index, entry in enumerate(entries.items):
            name = entry.get(key) if isinstance(entry, MappingNode) else None
            if isinstance(name, ScalarNode):
                yield index, name.text


def _limit_kinds(limits: Node | None) -> Iterator[tuple[str, Path]]:
    """Yield the level's name and the path of every limit kind."""
    if not isinstance(limits, MappingNode):
        return
    for group, value in limits.entries:
        if not isinstance(value, MappingNode):
            continue
        if group.text == "default":
            yield from (("default", ("limits", "default", kind)) for kind in value)
        else:
            for name, level in value.entries:
                for kind in level if isinstance(level, MappingNode) else ():
                    path = ("limits", group.text, name.text, kind)
                    yield f"{group.text}:{name.text}", path

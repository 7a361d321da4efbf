"""Files that hold an agent's session and those of its sub-agents, found by their beginnings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from policyguard.traces.containers.content import Content
from policyguard.traces.containers.expansion_limit import MAX_BUFFERED_BYTES
from policyguard.traces.containers.unpack import UnreadableContent, unpack
from policyguard.traces.containers.zip import ZipArchive
from policyguard.traces.formats import claude_code, native
from policyguard.traces.item import UnreadableError

_FIRST_LINE_BYTES = 1 << 16
"""Bytes of a first line that are looked at; of an event, which begins as our own do, all are."""
_EVENT_PREFIX = b'{"event":'

_SessionKey = tuple[Path, str]
"""A folder, and a session in a file of it."""


class SessionTree(msgspec.Struct, frozen=True):
    """Files whose sessions bear on each other: `places` among all files, each after its parent's.

    `above` says for each which of `places` is its parent's, -1 for the first. A file whose
    sessions have to do with no other file's is a family by itself.
    """

    indices: tuple[int, ...]
    parents: tuple[int, ...]


class _FileHead(msgspec.Struct, frozen=True):
    """The session that a file begins with, and the parent that it names, if any."""

    key: _SessionKey
    parent: _SessionKey | None = None


def find_session_trees(
    files: Sequence[Path], on_progress: Callable[[], None] = lambda: None
) -> list[SessionTree]:
    """All files, those together that belong together, in the order of each family's first file.

    A file is taken for what it begins with. The parent that this names is a file of its own folder
    or, where there is none, the only one of all. Of an archive's members nothing is found out.
    `heed` is called after each file, and may raise to stop.
    """
    found: dict[int, _FileHead] = {}
    for place, file in enumerate(files):
        beginning = _read_head(file)
        if beginning is not None:
            found[place] = beginning
        on_progress()
    above = dict(_find_parents(found))
    below: dict[int, list[int]] = {}
    for child, parent in above.items():
        below.setdefault(parent, []).append(child)
    kin = [_build_tree(place, below) for place in range(len(files)) if place not in above]
    # Files that name each other in a circle have none that is first: each is read by itself.
    left = set(range(len(files))).difference(*(family.indices for family in kin))
    kin += [_build_tree(place, {}) for place in left]
    return sorted(kin, key=lambda family: min(family.indices))


def _build_tree(first: int, children: Mapping[int, list[int]]) -> SessionTree:
    places, above = [first], [-1]
    for which, place in enumerate(places):  # which grow while it goes on
        for child in children.get(place, ()):
            places.append(child)
            above.append(which)
    return SessionTree(tuple(places), tuple(above))


def _find_parents(heads: Mapping[int, _FileHead]) -> Iterator[tuple[int, int]]:
    """Each file whose parent is known, and where that stands."""
    if all(beginning.parent is None for beginning in heads.values()):
        return
    here: dict[_SessionKey, list[int]] = {}
    anywhere: dict[str, list[int]] = {}
    for place, beginning in heads.items():
        here.setdefault(beginning.key, []).append(place)
        anywhere.setdefault(beginning.key[1], []).append(place)
    for place, beginning in heads.items():
        if beginning.parent is not None:
            parents = here.get(beginning.parent) or anywhere.get(beginning.parent[1], [])
            if len(parents) == 1 and parents != [place]:
                yield place, parents[0]


def _read_head(file: Path) -> _FileHead | None:
    """None for an archive, and for what cannot be read: whoever reads it says why."""
    content = next(unpack(file, lambda archive: True))
    if isinstance(content, UnreadableContent | ZipArchive) or content.path != file:
        return None
    head = _read_first_line(content)
    if head is not None and native.is_event(head):
        parent = (file.parent, head.parent) if head.parent else None
        return _FileHead((file.parent, head.session), parent)
    main = claude_code.main_session_file(file)
    parent = (main.parent, main.name) if main is not None else None
    return _FileHead((file.parent, content.name), parent)


def _read_first_line(content: Content) -> native.EventHead | None:
    try:
        with content.open_preview() as file:
            line = file.readline(_FIRST_LINE_BYTES)
            if line.startswith(_EVENT_PREFIX) and not line.endswith(b"\n"):
                line += file.readline(MAX_BUFFERED_BYTES)
            return native.parse_head(line)
    except (OSError, UnreadableError):
        return None

"""Files that hold an agent's session and those of its sub-agents, found by their first lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from policyguard.traces.containers.content import Content
from policyguard.traces.containers.expansion_limit import BUFFER_BYTES
from policyguard.traces.containers.row_filter import ALL_ROWS, Rows
from policyguard.traces.containers.unpack import UnreadableContent, unpack
from policyguard.traces.containers.zip import ZipArchive
from policyguard.traces.formats import claude_code, native
from policyguard.traces.item import UnreadableError

_FIRST_LINE_BYTES = 1 << 16
"""Bytes read of a first line; a policyguard event is read whole."""
_EVENT_PREFIX = b'{"event":'

_SessionKey = tuple[Path, str]
"""A folder, and the id of a session in a file of it."""


class SessionTree(msgspec.Struct, frozen=True):
    """The files of a session and its sub-agents: `indices` of files, parents before children.

    `parents` gives for each the position of its parent in `indices`, -1 for the first. A file with
    unrelated sessions is a tree of its own. Trees that were joined have several firsts.
    `has_events`: the first line of the first file is an event in policyguard's own format; None if
    that is unknown, as for an archive.
    """

    indices: tuple[int, ...]
    parents: tuple[int, ...]
    has_events: bool | None = None


class FileHead(msgspec.Struct, frozen=True):
    """The first session of a file, and the parent that it names, if any.

    `is_event`: the first line is an event in policyguard's own format.
    """

    key: _SessionKey
    parent: _SessionKey | None = None
    is_event: bool = False


def find_session_trees(
    files: Sequence[Path],
    on_progress: Callable[[], None] = lambda: None,
    rows: Rows = ALL_ROWS,
) -> list[SessionTree]:
    """Group files into trees, in the order of each tree's first file.

    Only the first session of a file counts. Its parent is looked up in the file's own folder, else
    among all files if only one matches. Archives are not opened. `on_progress` is called after
    each file, and may raise to stop.
    """
    heads: dict[int, FileHead] = {}
    for index, file in enumerate(files):
        head = _read_head(file, rows)
        if head is not None:
            heads[index] = head
        on_progress()
    parents = dict(_find_parents(heads))
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    roots = [index for index in range(len(files)) if index not in parents]
    trees = [_build_tree(index, children, heads.get(index)) for index in roots]
    # Files that name each other in a circle have no root: each is a tree of its own.
    left = set(range(len(files))).difference(*(tree.indices for tree in trees))
    trees += [_build_tree(index, {}, heads.get(index)) for index in left]
    return sorted(trees, key=lambda tree: min(tree.indices))


def join_trees(trees: Sequence[SessionTree]) -> list[SessionTree]:
    """Join the trees whose files are in policyguard's own format, to be read in order of time.

    Those of other formats stay apart: few of them name an agent or a project.
    """
    joined: list[SessionTree] = []
    others: list[SessionTree] = []
    for tree in trees:
        (joined if tree.has_events else others).append(tree)
    if len(joined) < 2:
        return list(trees)
    indices: list[int] = []
    parents: list[int] = []
    for tree in joined:
        start = len(indices)
        indices += tree.indices
        parents += [parent if parent < 0 else start + parent for parent in tree.parents]
    together = SessionTree(tuple(indices), tuple(parents), has_events=True)
    return sorted([together, *others], key=lambda tree: min(tree.indices))


def _build_tree(root: int, children: Mapping[int, list[int]], head: FileHead | None) -> SessionTree:
    indices, parents = [root], [-1]
    for position, index in enumerate(indices):  # which grows in the loop
        for child in children.get(index, ()):
            indices.append(child)
            parents.append(position)
    return SessionTree(tuple(indices), tuple(parents), None if head is None else head.is_event)


def _find_parents(heads: Mapping[int, FileHead]) -> Iterator[tuple[int, int]]:
    """Yield each file with a known parent, and the index of that parent."""
    if all(head.parent is None for head in heads.values()):
        return
    by_key: dict[_SessionKey, list[int]] = {}
    by_id: dict[str, list[int]] = {}
    for index, head in heads.items():
        by_key.setdefault(head.key, []).append(index)
        by_id.setdefault(head.key[1], []).append(index)
    for index, head in heads.items():
        if head.parent is not None:
            parents = by_key.get(head.parent) or by_id.get(head.parent[1], [])
            if len(parents) == 1 and parents != [index]:
                yield index, parents[0]


def _read_head(file: Path, rows: Rows) -> FileHead | None:
    """Read the head of a file; None for an archive or an unreadable one, which readers report."""
    content = next(unpack(file, lambda archive: True, rows), None)
    if (
        content is None
        or isinstance(content, UnreadableContent | ZipArchive)
        or content.path != file
    ):
        return None
    event = _read_first_line(content)
    if event is not None:
        parent = (file.parent, event.parent) if event.parent else None
        return FileHead((file.parent, event.session), parent, is_event=True)
    main = claude_code.main_session_file(file)
    parent = (main.parent, main.name) if main is not None else None
    return FileHead((file.parent, content.name), parent)


def _read_first_line(content: Content) -> native.EventHead | None:
    try:
        with content.open_preview() as file:
            line = file.readline(_FIRST_LINE_BYTES)
            if line.startswith(_EVENT_PREFIX) and not line.endswith(b"\n"):
                line += file.readline(BUFFER_BYTES)
            return native.parse_head(line)
    except (OSError, UnreadableError):
        return None

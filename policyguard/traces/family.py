"""Files that hold an agent's session and those of its sub-agents, found by their beginnings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from policyguard.traces import claude_code, native
from policyguard.traces.allowance import LONGEST_BYTES
from policyguard.traces.contents import Content
from policyguard.traces.item import UnreadableError
from policyguard.traces.unpack import Unread, unpacked
from policyguard.traces.zipped import ZipArchive

_SHORT = 1 << 16
"""Bytes of a first line that are looked at; of an event, which begins as our own do, all are."""
_EVENT = b'{"event":'

_Name = tuple[Path, str]
"""A folder, and a session in a file of it."""


class Family(msgspec.Struct, frozen=True):
    """Files whose sessions bear on each other: `places` among all files, each after its parent's.

    `above` says for each which of `places` is its parent's, -1 for the first. A file whose
    sessions have to do with no other file's is a family by itself.
    """

    places: tuple[int, ...]
    above: tuple[int, ...]


class _Beginning(msgspec.Struct, frozen=True):
    """The session that a file begins with, and the parent that it names, if any."""

    name: _Name
    parent: _Name | None = None


def families(files: Sequence[Path], heed: Callable[[], None] = lambda: None) -> list[Family]:
    """All files, those together that belong together, in the order of each family's first file.

    A file is taken for what it begins with. The parent that this names is a file of its own folder
    or, where there is none, the only one of all. Of an archive's members nothing is found out.
    `heed` is called after each file, and may raise to stop.
    """
    found: dict[int, _Beginning] = {}
    for place, file in enumerate(files):
        beginning = _beginning(file)
        if beginning is not None:
            found[place] = beginning
        heed()
    above = dict(_above(found))
    below: dict[int, list[int]] = {}
    for child, parent in above.items():
        below.setdefault(parent, []).append(child)
    kin = [_family(place, below) for place in range(len(files)) if place not in above]
    # Files that name each other in a circle have none that is first: each is read by itself.
    left = set(range(len(files))).difference(*(family.places for family in kin))
    kin += [_family(place, {}) for place in left]
    return sorted(kin, key=lambda family: min(family.places))


def _family(first: int, below: Mapping[int, list[int]]) -> Family:
    places, above = [first], [-1]
    for which, place in enumerate(places):  # which grow while it goes on
        for child in below.get(place, ()):
            places.append(child)
            above.append(which)
    return Family(tuple(places), tuple(above))


def _above(found: Mapping[int, _Beginning]) -> Iterator[tuple[int, int]]:
    """Each file whose parent is known, and where that stands."""
    if all(beginning.parent is None for beginning in found.values()):
        return
    here: dict[_Name, list[int]] = {}
    anywhere: dict[str, list[int]] = {}
    for place, beginning in found.items():
        here.setdefault(beginning.name, []).append(place)
        anywhere.setdefault(beginning.name[1], []).append(place)
    for place, beginning in found.items():
        if beginning.parent is not None:
            parents = here.get(beginning.parent) or anywhere.get(beginning.parent[1], [])
            if len(parents) == 1 and parents != [place]:
                yield place, parents[0]


def _beginning(file: Path) -> _Beginning | None:
    """None for an archive, and for what cannot be read: whoever reads it says why."""
    content = next(unpacked(file, lambda archive: True))
    if isinstance(content, Unread | ZipArchive) or content.path != file:
        return None
    head = _head(content)
    if head is not None and native.is_event(head):
        parent = (file.parent, head.parent) if head.parent else None
        return _Beginning((file.parent, head.session), parent)
    main = claude_code.main(file)
    parent = (main.parent, main.name) if main is not None else None
    return _Beginning((file.parent, content.name), parent)


def _head(content: Content) -> native.Head | None:
    try:
        with content.look() as file:
            line = file.readline(_SHORT)
            if line.startswith(_EVENT) and not line.endswith(b"\n"):
                line += file.readline(LONGEST_BYTES)
            return native.head(line)
    except (OSError, UnreadableError):
        return None

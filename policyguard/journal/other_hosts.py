"""Journals of one session on several hosts: which of them are only behind."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from policyguard.journal.chain import ChainPosition
from policyguard.journal.findings import VerifyFinding, make_finding
from policyguard.journal.handover import count_common, lacks_lines, place_of, read_lines
from policyguard.store.protocol import Anchor, AnchorStore, SharedAnchorStore


class OtherHosts:
    """What other hosts have of the sessions that are verified.

    With `anchors` of several hosts, theirs are the sessions whose last lines were put there from
    another place than the verified one. That is enough where `is_one` folder is verified; of
    several, one must have these lines.
    """

    def __init__(self, anchors: AnchorStore | None, *, is_one: bool) -> None:
        self._shared = anchors if isinstance(anchors, SharedAnchorStore) else None
        self._is_one = is_one
        self._files: dict[str, list[Path]] = {}
        self._elsewhere: dict[str, int] = {}

    def add(self, files: Iterable[Path]) -> None:
        """Add the files that are verified."""
        for file in files:
            self._files.setdefault(file.name, []).append(file)

    def have(self, session: str, folder: Path) -> bool:
        """Whether a session's last lines were not written in this folder; it is counted then."""
        place = self.find_place(session, folder) if self._is_one else ""
        if place:
            self._elsewhere[place] = self._elsewhere.get(place, 0) + 1
        return bool(place)

    def describe(self, folder: Path) -> Iterator[VerifyFinding]:
        """Report how many sessions other hosts have."""
        for place, sessions in sorted(self._elsewhere.items()):
            what = "1 session is" if sessions == 1 else f"{sessions} sessions are"
            message = f"{what} at {place}: pass that folder too, to verify them"
            yield make_finding("journal/handed-over", folder, message)

    def find_handover(
        self, file: Path, end: ChainPosition, anchors: list[Anchor]
    ) -> VerifyFinding | None:
        """Return that a file lacks its anchor because its session went on elsewhere.

        A host that died, or was cut off, lacks at most lines that others have put into the store,
        and has at most lines that it has not put there itself: else there is no such finding.
        """
        if len({one.chain for one in anchors}) != 1:
            return None
        last = max(anchors, key=lambda one: one.count)
        if not lacks_lines(file, last):
            return None
        is_first = end.count <= 1 and end.chain != last.chain  # it died before this was anchored
        for where, lines in self._find_places(file, last):
            with file.open("rb") as own_lines:
                common = count_common(own_lines, lines)
                own_lines.seek(0)
                size = sum(len(own_lines.readline()) for _ in range(common))
            if size < self._find_put_size(last.session, file.parent):
                return None
            if common == end.count:
                message = (
                    f"ends at line {end.count} of {last.count}: the session went on at {where}"
                )
                return make_finding("journal/handed-over", file, message, end.count)
            if common or is_first:
                own = end.count - common
                what = "1 line was" if own == 1 else f"{own} lines were"
                message = f"{what} never anchored: the session went on without them at {where}"
                return make_finding("journal/set-aside", file, message, common + 1)
        return None

    def _find_places(self, file: Path, last: Anchor) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Yield the places that have what was anchored last, with the session's lines there."""
        where = self.find_place(last.session, file.parent)
        if where and self._is_one and self._shared is not None:
            yield where, read_lines(self._shared.lines(last.session), sys.maxsize)
        for other in self._files.get(file.name, ()):
            if not lacks_lines(other, last):
                with other.open("rb") as lines:
                    yield str(other), lines

    def has_put(self, session: str, folder: Path) -> bool:
        """Whether this folder's host has put lines of the session's present journal."""
        return self._find_put_size(session, folder) > 0

    def _find_put_size(self, session: str, folder: Path) -> int:
        """Return up to which byte this folder's host has put the session's lines."""
        if self._shared is None:
            return 0
        return self._shared.lines_size(session, place_of(folder))

    def find_place(self, session: str, folder: Path) -> str:
        """Return the other place where a session went on; empty for this one."""
        place = self._shared.last_place(session) if self._shared is not None else ""
        return "" if place == place_of(folder) else place

"""Journals of one session on several hosts: which of them are only behind."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from policyguard.journal.chain import ChainPosition
from policyguard.journal.findings import VerifyFinding, make_finding
from policyguard.journal.handover import count_common, place_of, read_lines
from policyguard.store.protocol import Anchor, AnchorStore, SharedAnchorStore


class OtherHosts:
    """What other hosts have of the sessions that are verified.

    With `anchors` of several hosts, theirs are the sessions whose last lines were put there from
    another place than the verified one. Without, other files of the same session are compared.
    """

    def __init__(self, anchors: AnchorStore | None) -> None:
        self._shared = anchors if isinstance(anchors, SharedAnchorStore) else None
        self._files: dict[str, list[Path]] = {}
        self._elsewhere: dict[str, int] = {}

    def add(self, files: Iterable[Path]) -> None:
        """Add the files that are verified."""
        for file in files:
            self._files.setdefault(file.name, []).append(file)

    def have(self, session: str, folder: Path) -> bool:
        """Whether a session's last lines were not written in this folder; it is counted then."""
        place = self._find_place(session, folder)
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
        """Return that a file is behind its anchor because its session went on elsewhere."""
        anchored = max((one.count for one in anchors if one.chain == end.chain), default=0)
        if end.count >= anchored or len({one.chain for one in anchors}) != 1:
            return None
        for where, lines in self._find_longer(file, anchors[0].session, end):
            with file.open("rb") as own_lines:
                common = count_common(own_lines, lines)
            if common == end.count:
                message = f"ends at line {end.count} of {anchored}: the session went on at {where}"
                return make_finding("journal/handed-over", file, message, end.count)
            if common:
                own = end.count - common
                message = f"{own} lines were never anchored: the session went on without them at "
                return make_finding("journal/set-aside", file, message + where, common + 1)
        return None

    def _find_longer(
        self, file: Path, session: str, end: ChainPosition
    ) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Yield the places where the session went on, with its lines there."""
        where = self._find_place(session, file.parent)
        if where and self._shared is not None:
            yield where, read_lines(self._shared.lines(session), sys.maxsize)
        for other in self._files.get(file.name, ()):
            if other != file and other.stat().st_size > end.size:
                with other.open("rb") as lines:
                    yield str(other), lines

    def _find_place(self, session: str, folder: Path) -> str:
        """Return the other place where a session went on; empty for this one."""
        place = self._shared.last_place(session) if self._shared is not None else ""
        return "" if place == place_of(folder) else place

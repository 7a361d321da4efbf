"""Follow a whole journal, from its first line to its last."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from policyguard.journal.chain import (
    BrokenChainError,
    ChainPosition,
    Hasher,
    advance,
    decode_session,
    decode_time,
)
from policyguard.journal.errors import AlteredError, JournalError
from policyguard.journal.folder import file_name
from policyguard.journal.recovery import require_own_anchor, require_same_key
from policyguard.store.protocol import Anchor


def follow_journal(
    lines: Iterable[bytes], path: Path, anchor: Anchor | None, hasher: Hasher, name: str = ""
) -> tuple[str, ChainPosition, int | None]:
    """Follow the lines of a journal. Return its session, its end, and the latest event's time (ns).

    `path` is what errors name, `name` the journal's file name where that is another. Raises
    `AlteredError` for a chain that is broken, of another session, or differs from its anchor.
    """
    position = ChainPosition()
    session, latest, reached = "", None, False
    for line in lines:
        if not line.endswith(b"\n"):
            break
        if not position.count:
            try:
                require_same_key(path, line, hasher)
            except JournalError:
                raise AlteredError(path, "its hashes need another key, or none") from None
            session = decode_session(line) or ""
            if file_name(session) != (name or path.name):
                raise AlteredError(path, "it holds another session")
            if anchor is not None:
                require_own_anchor(path, line, anchor, hasher)
        try:
            position = advance(hasher, session, position, line[:-1])
        except BrokenChainError as error:
            raise AlteredError(path, f"line {position.count + 1} {error}") from None
        at = decode_time(line)
        if at is not None:
            latest = at if latest is None else max(at, latest)
        if anchor is not None and position.count == anchor.count:
            reached = (position.chain, position.hash) == (anchor.chain, anchor.hash)
    if anchor is not None and not reached:
        raise AlteredError(path, f"it differs from its anchor, which counts {anchor.count} lines")
    return session, position, latest

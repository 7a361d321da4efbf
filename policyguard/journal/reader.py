"""Read a session's events from its journal, verifying each, to rebuild state."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

from policyguard.engines.operating_system import O_CLOEXEC, O_NONBLOCK
from policyguard.journal.chain import BrokenChainError, ChainPosition, Hasher, advance
from policyguard.journal.errors import AlteredError, JournalError, MissingLinesError
from policyguard.journal.format import LineError, decode
from policyguard.journal.recovery import (
    require_anchored,
    require_own_anchor,
    require_regular,
    require_same_key,
)
from policyguard.model.event import Event
from policyguard.store.protocol import Anchor


def read_events(
    path: Path,
    session: str,
    anchor: Anchor | None,
    hasher: Hasher,
    *,
    has_all_anchors: bool = False,
    lines: Iterable[bytes] | None = None,
) -> Iterator[Event]:
    """Yield the events in order; none if there is no file and no anchor.

    `lines` are read instead of the file. Ignores a torn last line. With `has_all_anchors`, no
    anchor was evicted or given up. Raises `AlteredError` if the chain is broken or differs from
    the anchor, `MissingLinesError` if `lines` end before it, `JournalError` if the file cannot be
    read or has another key.
    """
    position = ChainPosition()
    first = b""
    try:
        with _open(path) if lines is None else nullcontext(lines) as found:
            for line in found:
                if not line.endswith(b"\n"):
                    break
                if not position.count:
                    first = line
                    require_same_key(path, line, hasher)
                    if anchor is not None:
                        require_own_anchor(path, line, anchor, hasher)
                content = line[:-1]
                try:
                    position = advance(hasher, session, position, content)
                    yield decode(content)
                except (BrokenChainError, LineError) as error:
                    raise AlteredError(path, f"line {position.count + 1} {error}") from None
                if anchor is not None and position.count == anchor.count:
                    _check_anchor(path, position, anchor)
                elif anchor is None and has_all_anchors:
                    require_anchored(path, first, position.count, hasher)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise JournalError(
            path, f"cannot be read: {error.strerror}", "check that it is a file that you can read"
        ) from None
    if anchor is not None and position.count < anchor.count:
        if lines is not None:
            raise MissingLinesError(path, anchor.count)
        raise AlteredError(path, f"has {position.count} lines, but {anchor.count} were anchored")


def _open(path: Path) -> BinaryIO:
    """Open the file without waiting for a pipe in its place."""
    file = os.fdopen(os.open(path, os.O_RDONLY | O_NONBLOCK | O_CLOEXEC), "rb")
    try:
        require_regular(file.fileno(), path)
    except BaseException:
        file.close()
        raise
    return file


def _check_anchor(path: Path, position: ChainPosition, anchor: Anchor) -> None:
    if (position.chain, position.hash) != (anchor.chain, anchor.hash):
        raise AlteredError(path, f"line {position.count} differs from the anchored one")

"""The events of a session's journal, each checked as it is read: state is rebuilt from them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from policyguard.journal.chain import Hasher
from policyguard.journal.chain_position import BrokenChainError, ChainPosition, advance
from policyguard.journal.errors import AlteredError, JournalError
from policyguard.journal.format import LineError, decode
from policyguard.journal.recovery import require_regular, require_same_key
from policyguard.model.event import Event
from policyguard.store.protocol import Anchor


def read_events(path: Path, session: str, anchor: Anchor | None, hasher: Hasher) -> Iterator[Event]:
    """The events in order; none where there is no file, nor ever was one.

    A line that was torn off at the end is passed over. Raises `AlteredError` where the chain does
    not hold or is not the anchored one, `JournalError` where the file cannot be read or was begun
    with another key.
    """
    position = ChainPosition()
    try:
        with _open(path) as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if not position.count:
                    require_same_key(path, line, hasher)
                try:
                    position = advance(hasher, session, position, line[:-1])
                    yield decode(line)
                except (BrokenChainError, LineError) as error:
                    raise _altered(path, f"line {position.count + 1} {error}") from None
                if anchor is not None and position.count == anchor.count:
                    _check_anchor(path, position, anchor)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise JournalError(
            path, f"cannot be read: {error.strerror}", "see that it is a file that you may read"
        ) from None
    if anchor is not None and position.count < anchor.count:
        raise _altered(path, f"has {position.count} lines where {anchor.count} were anchored")


def _open(path: Path) -> BinaryIO:
    """The file. A pipe in its place would keep whoever opens it waiting, and is none."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        require_regular(file.fileno(), path)
    except BaseException:
        file.close()
        raise
    return file


def _check_anchor(path: Path, position: ChainPosition, anchor: Anchor) -> None:
    if (position.chain, position.hash) != (anchor.chain, anchor.hash):
        raise _altered(path, f"line {position.count} is not the one that was anchored")


def _altered(path: Path, reason: str) -> AlteredError:
    return AlteredError(
        path,
        f"was altered: {reason}",
        "look with `policyguard journal verify --store STORE`; use another session id to go on",
    )

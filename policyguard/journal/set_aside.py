"""Delete expired lines that were put aside, when another host had gone on without them.

No anchor counts them, so no note is left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from policyguard.engines.operating_system import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK
from policyguard.journal.chain import Hasher
from policyguard.journal.errors import JournalError
from policyguard.journal.handover import ASIDE
from policyguard.journal.recovery import require_regular
from policyguard.journal.whole_journal import follow_journal


def prune_set_aside(
    folder: Path, before: int, hasher: Hasher, *, dry_run: bool = False
) -> Iterator[Path | JournalError]:
    """Delete the files put aside whose last event was `before` a time (ns), as hashed.

    Yield each that was deleted (with `dry_run`, would be), and why others are kept: a file that
    does not verify is not old.
    """
    for path in sorted(folder.glob(f"*{ASIDE}")):
        try:
            descriptor = os.open(path, os.O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as lines:
                require_regular(descriptor, path)
                name = path.name.removesuffix(ASIDE).rpartition(".")[0]
                latest = follow_journal(lines, path, None, hasher, name)[2]
            if latest is None or latest >= before:
                continue
            if not dry_run:
                path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = f"cannot be deleted: {error.strerror}"
            yield JournalError(path, reason, "check that you can write to the folder")
        except JournalError as error:
            yield error
        else:
            yield path

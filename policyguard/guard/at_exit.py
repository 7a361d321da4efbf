"""Guards that a process leaves open are closed when it ends.

Otherwise the last lines of their journals would have no anchor, and the parts of shared budgets
that they reserved would stay reserved for a while.
"""

from __future__ import annotations

import atexit
import weakref
from typing import TYPE_CHECKING

from policyguard.engines.operating_system import after_fork_in_child
from policyguard.guard.host_log import warn
from policyguard.journal.errors import JournalError
from policyguard.store.errors import StoreError

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard

_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def close_at_exit(guard: Guard) -> None:
    """Close the guard when the process ends, if it exists then. After a fork the parent does."""
    _guards.add(guard)


@atexit.register
def _close_all() -> None:
    for guard in list(_guards):
        try:
            guard.close()
        except (JournalError, StoreError) as error:
            warn(str(error))


after_fork_in_child(_guards.clear)

"""How the run of a session goes."""

from __future__ import annotations

from typing import cast

from policyguard.evaluator.disabled_tools import find_disabled_tools
from policyguard.evaluator.session_state import PROGRESSING
from policyguard.guard.sessions.lifetime import SessionLifetime
from policyguard.learned.progress import ProgressStatus

Progress = ProgressStatus
"""How the search of a session goes; see `SessionStatus.progress`."""


class SessionStatus(SessionLifetime):
    """What a host may ask of a session between calls."""

    __slots__ = ()

    @property
    def disabled(self) -> dict[str, str]:
        """The tools that need not be offered to the model, with the reason.

        Those that limits have switched off, until the limit's `until`; and of the tools that the
        host has named (`offer`), those of which the policy refuses every call.
        """
        if self.guard._mode.observe:
            return {}
        offered = self._state.offered
        with self.guard._lock:
            return find_disabled_tools(
                self.guard._evaluator, self._state, () if offered is None else offered.names
            )

    @property
    def halted_by(self) -> str:
        """The entry that halted this run or its parent's, until the next turn; empty for none."""
        with self.guard._lock:
            return self._state.halted_by()

    @property
    def progress(self) -> Progress:
        """The progress of the search: `progressing`, `plateau`, `exhausted` or `constrained_out`.

        *plateau*: scores have not improved for a while; *exhausted*: learned constraints ban
        everything that the session has tried; *constrained_out*: nearly all of it.
        """
        with self.guard._lock:
            return cast("Progress", self._state.cel_session["progress"])

    @property
    def done(self) -> bool:
        """Whether to stop, since the session is not progressing."""
        return self.progress != PROGRESSING

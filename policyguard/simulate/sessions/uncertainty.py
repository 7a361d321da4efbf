"""What missing data leaves unknown in a replayed session, for itself and for others."""

from __future__ import annotations

from policyguard.simulate.sessions.redacted import Applicability
from policyguard.simulate.sessions.redacted_marks import Reach


class UncertainEntries:
    """Entries that are uncertain in several sessions."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: frozenset[str] = frozenset()


class Uncertainty:
    """The data that has become unknown in one session. It only grows.

    `entries` have unknown counts; some of them in all sessions of the `run`, the `agent` or the
    `project`, for marks that these share. `state_changes`: some calls were assumed to change
    state, so a refused repetition is certain and an admitted one is not. `may_be_refused`: any call
    that is admitted might have been refused.
    """

    __slots__ = ("_own", "agent", "may_be_refused", "project", "run", "state_changes")

    def __init__(
        self, run: UncertainEntries, agent: UncertainEntries, project: UncertainEntries
    ) -> None:
        self.may_be_refused = self.state_changes = False
        self._own: frozenset[str] = frozenset()
        self.run, self.agent, self.project = run, agent, project

    @property
    def entries(self) -> frozenset[str]:
        """The entries that are uncertain here."""
        return self._own.union(self.run.entries, self.agent.entries, self.project.entries)

    def __bool__(self) -> bool:
        return (
            self.may_be_refused
            or self.state_changes
            or bool(self._own or self.run.entries or self.agent.entries or self.project.entries)
        )

    def add_call(self, applicability: Applicability) -> None:
        """Note a call that was evaluated with incomplete data."""
        if not applicability.uncertain_counts <= self._own:
            self._own |= applicability.uncertain_counts
            self.add_marks(applicability.reach)
        if not applicability.knows_state_change:
            self.state_changes = True

    def add_refusal(self) -> None:
        """Note a refusal by an unknown entry or with an unknown effect."""
        self.may_be_refused = True

    def add_marks(self, reach: Reach) -> None:
        """Note marks that are uncertain, such as those with keys that cannot be compared."""
        self.run.entries |= reach.run
        self.agent.entries |= reach.agent
        self.project.entries |= reach.project

    def add_result(self, entries: frozenset[str], marks: Reach) -> None:
        """Note a redacted result on which `entries` and `marks` depend."""
        self.may_be_refused = True
        self._own |= entries | {"learn"}
        self.add_marks(marks)

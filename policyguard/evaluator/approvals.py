"""Who has said yes to a call that was asked about: bound to its fingerprint, used once."""

from __future__ import annotations

import msgspec

from policyguard.model.event import Charge


class ApprovalRequirement(msgspec.Struct, frozen=True):
    """Whose yes it takes (labels; none: anyone's), and of how many people.

    It is waited for `within` (ns). `otherwise_allow`: where nobody can be asked, the call runs.
    """

    labels: frozenset[str]
    approvers: int
    within: int
    allow_unanswered: bool


class GivenApproval(msgspec.Struct, frozen=True):
    """One approval: by whom, with which of the host's labels, when (ns)."""

    by: str
    labels: frozenset[str]
    at: int | None


class ApprovalRequest(msgspec.Struct, frozen=True):
    """When somebody was asked about a call (ns), and which budgets a yes raises."""

    at: int | None
    charges: tuple[Charge, ...] = ()


class Approvals:
    """The calls of a session that were asked about, and what was said. At most `most` of each."""

    __slots__ = ("max_entries", "received", "requests")

    def __init__(self, max_entries: int) -> None:
        self.max_entries = max_entries
        self.requests: dict[str, ApprovalRequest] = {}
        self.received: dict[str, list[GivenApproval]] = {}

    def add_request(self, fingerprint: str, request: ApprovalRequest, within: int | None) -> None:
        """A call was refused because somebody must be asked.

        Where it has been asked before and was not answered `within` this time, it is asked anew.
        """
        if fingerprint in self.requests:
            if within is None or not self.is_expired(fingerprint, within, request.at):
                return
            self.clear(fingerprint)
        self.requests[fingerprint] = request
        if len(self.requests) > self.max_entries:
            self.clear(next(iter(self.requests)))

    def add_approval(self, fingerprint: str, approval: GivenApproval) -> None:
        """Somebody has said yes. Whoever says it twice is one.

        Where no question is open it counts nowhere: no later one is answered beforehand.
        """
        if fingerprint not in self.requests:
            return
        given = self.received.setdefault(fingerprint, [])
        given[:] = [one for one in given if one.by != approval.by]
        given.append(approval)
        if len(given) > self.max_entries:
            del given[0]

    def is_approved(
        self, fingerprint: str, requirement: ApprovalRequirement | None, at: int | None
    ) -> bool:
        """Whether enough has been said, soon enough, for what has these terms against the call.

        What has none is waived by any one approval.
        """
        given = self.received.get(fingerprint)
        if not given:
            return False
        if requirement is None:
            return True
        asked = self.requests.get(fingerprint)
        people = {
            one.by
            for one in given
            if (not requirement.labels or one.labels & requirement.labels)
            and (asked is None or _is_within(asked.at, one.at, requirement.within))
            and _is_within(one.at, at, requirement.within)
        }
        return len(people) >= requirement.approvers

    def is_expired(self, fingerprint: str, within: int, at: int | None) -> bool:
        """Whether the call was asked about, and nobody has answered for `within`."""
        asked = self.requests.get(fingerprint)
        return asked is not None and not _is_within(asked.at, at, within)

    def charges_to_extend(self, fingerprint: str) -> tuple[Charge, ...]:
        """The budgets that a yes to this call raises; only the first one does."""
        asked = self.requests.get(fingerprint)
        return asked.charges if asked is not None and fingerprint not in self.received else ()

    def clear(self, fingerprint: str) -> None:
        """The call has been admitted: whoever wants it again must ask again."""
        self.requests.pop(fingerprint, None)
        self.received.pop(fingerprint, None)


def _is_within(first: int | None, then: int | None, within: int) -> bool:
    return first is None or then is None or then - first <= within

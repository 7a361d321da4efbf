"""Approvals of calls that were asked about: bound to the call's fingerprint, used once."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from policyguard.evaluator.evaluation import ApproverPresence
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.event import Charge, Refused
from policyguard.model.grant import GrantRequest

_DENIED = "do without this call; to make it again changes nothing before the user's next message"


class ApprovalRequirement(msgspec.Struct, frozen=True):
    """How many people must approve, with one of which labels (none: any), `within` what time (ns).

    `allow_unanswered`: the call runs if no one can be asked. `remember`: which grants may be made.
    """

    labels: frozenset[str]
    approvers: int
    within: int
    allow_unanswered: bool
    remember: frozenset[str]


class GivenApproval(msgspec.Struct, frozen=True):
    """One approval: by whom, with which of the host's labels, when (ns), what to remember."""

    by: str
    labels: frozenset[str]
    at: int | None
    request: GrantRequest | None = None


class GivenDenial(msgspec.Struct, frozen=True):
    """A no: by whom, until when (ns; None: until the turn ends), and the word for the model."""

    by: str
    until: int | None
    message: str


class ApprovalRequest(msgspec.Struct, frozen=True):
    """When approval of a call was asked for (ns), which budgets it raises, and the call."""

    at: int | None
    charges: tuple[Charge, ...] = ()
    call: Refused | None = None


class UsedApproval(msgspec.Struct, frozen=True):
    """What an admitted call used up: its request, and the approvals given to it."""

    request: ApprovalRequest
    received: list[GivenApproval]


class Approvals(msgspec.Struct, eq=False):
    """A session's approval requests and their answers, at most `max_entries` of each."""

    max_entries: int
    requests: dict[str, ApprovalRequest] = msgspec.field(default_factory=dict)
    received: dict[str, list[GivenApproval]] = msgspec.field(default_factory=dict)
    denied: dict[str, GivenDenial] = msgspec.field(default_factory=dict)

    def add_request(self, fingerprint: str, request: ApprovalRequest, within: int | None) -> None:
        """Add a request; it replaces an earlier one only if that was unanswered for `within`."""
        if fingerprint in self.requests:
            if within is None or not self.is_expired(fingerprint, within, request.at):
                return
            self.clear(fingerprint)
        self.requests[fingerprint] = request
        if len(self.requests) > self.max_entries:
            self.clear(next(iter(self.requests)))

    def add_approval(self, fingerprint: str, approval: GivenApproval) -> None:
        """Add an approval, in place of an earlier one by the same person.

        Without an open request it counts nowhere: no later one is approved beforehand.
        """
        if fingerprint not in self.requests:
            return
        received = self.received.setdefault(fingerprint, [])
        received[:] = [earlier for earlier in received if earlier.by != approval.by]
        received.append(approval)
        if len(received) > self.max_entries:
            del received[0]

    def deny(self, fingerprint: str, denial: GivenDenial) -> None:
        """Add a no to an open request, which it closes. Without one it counts nowhere."""
        if fingerprint not in self.requests:
            return
        self.clear(fingerprint)
        self.denied[fingerprint] = denial
        if len(self.denied) > self.max_entries:
            del self.denied[next(iter(self.denied))]

    def refuse_denied(
        self, found: list[Violation], fingerprint: str, at: int | None
    ) -> list[Violation]:
        """Return the violations of a call; what asks is refused while a no holds at `at` (ns)."""
        denial = self.denied.get(fingerprint)
        if denial is None or not (denial.until is None or at is None or at <= denial.until):
            return found
        text = f"denied by {denial.by}" + (f": {denial.message}" if denial.message else "")
        return [
            replace(one, effect=Effect.BLOCK, reason="denied", text=text, instead=_DENIED)
            if one.effect is Effect.ASK
            else one
            for one in found
        ]

    def is_approved(
        self, fingerprint: str, requirement: ApprovalRequirement | None, at: int | None
    ) -> bool:
        """Whether the approvals meet a requirement in time; without one, any approval does."""
        received = self.received.get(fingerprint)
        if not received:
            return False
        if requirement is None:
            return True
        counted = self.find_counted(fingerprint, received, requirement, at)
        return len(counted) >= requirement.approvers

    def find_counted(
        self,
        fingerprint: str,
        approvals: Iterable[GivenApproval],
        requirement: ApprovalRequirement | None,
        at: int | None,
    ) -> list[GivenApproval]:
        """Return those approvals that count for a requirement at `at` (ns)."""
        if requirement is None:
            return list(approvals)
        request = self.requests.get(fingerprint)
        return [
            approval
            for approval in approvals
            if (not requirement.labels or approval.labels & requirement.labels)
            and (request is None or _is_within(request.at, approval.at, requirement.within))
            and _is_within(approval.at, at, requirement.within)
        ]

    def is_expired(self, fingerprint: str, within: int, at: int | None) -> bool:
        """Whether a request has stood unanswered for more than `within` (ns)."""
        request = self.requests.get(fingerprint)
        return request is not None and not _is_within(request.at, at, within)

    def lets_run_unanswered(
        self,
        fingerprint: str,
        requirement: ApprovalRequirement | None,
        presence: ApproverPresence,
        at: int | None,
    ) -> bool:
        """Whether an unanswered question lets the call run."""
        if requirement is None or not requirement.allow_unanswered or presence == "never":
            return False
        return presence == "absent" or self.is_expired(fingerprint, requirement.within, at)

    def charges_to_extend(self, fingerprint: str) -> tuple[Charge, ...]:
        """Return what an approval of this call raises; only the first approval does."""
        request = self.requests.get(fingerprint)
        return request.charges if request is not None and fingerprint not in self.received else ()

    def use(self, fingerprint: str) -> UsedApproval | None:
        """Use up a call's request and approvals: it is admitted, and must be asked about anew."""
        request = self.requests.pop(fingerprint, None)
        received = self.received.pop(fingerprint, [])
        return None if request is None else UsedApproval(request, received)

    def restore(self, fingerprint: str, used: UsedApproval) -> None:
        """Put back what an admission used up of which nothing could be recorded."""
        self.requests[fingerprint] = used.request
        if used.received:
            self.received[fingerprint] = used.received

    def clear(self, fingerprint: str) -> None:
        """Forget a call's request and approvals."""
        self.requests.pop(fingerprint, None)
        self.received.pop(fingerprint, None)


def _is_within(first: int | None, then: int | None, within: int) -> bool:
    return first is None or then is None or then - first <= within

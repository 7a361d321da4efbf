"""Grants in force: which call each covers, and how approvals become one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

from policyguard.evaluator.approvals import ApprovalRequirement, GivenApproval
from policyguard.evaluator.attempt import Attempt
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.event import Refused
from policyguard.model.grant import CallPattern, Grant, GrantRequest

if TYPE_CHECKING:
    from policyguard.evaluator.session_state import SessionState


class PatternReader(Protocol):
    """Finds what calls have in common besides their tool, as a policy classifies calls."""

    def find_pattern(self, call: Refused, remember: str, cwd: str) -> CallPattern:
        """Return the pattern of the calls like this one. `ValueError` says why there is none."""
        ...

    def covers(self, pattern: CallPattern, args: dict[str, Any], cwd: str) -> bool:
        """Whether a call of the pattern's tool has all else that the pattern asks for."""
        ...


class GrantSet:
    """The grants of a guard, by the entry that they lift *ask* of; at most `max_grants`."""

    def __init__(self, max_grants: int) -> None:
        self._max_grants = max_grants
        self._grants: dict[str, Grant] = {}
        self._by_entry: dict[str, dict[str, Grant]] = {}

    def __len__(self) -> int:
        return len(self._grants)

    def __iter__(self) -> Iterator[Grant]:
        return iter(tuple(self._grants.values()))

    def get(self, id_: str) -> Grant | None:
        """Return the grant with an id."""
        return self._grants.get(id_)

    def put(self, grant: Grant) -> None:
        """Add a grant; beyond the maximum the oldest is forgotten."""
        self.remove(grant.id)
        self._grants[grant.id] = grant
        self._by_entry.setdefault(grant.entry, {})[grant.id] = grant
        if len(self._grants) > self._max_grants:
            self.remove(next(iter(self._grants)))

    def remove(self, id_: str) -> None:
        """Remove a grant, if it exists."""
        grant = self._grants.pop(id_, None)
        if grant is None:
            return
        del self._by_entry[grant.entry][id_]
        if not self._by_entry[grant.entry]:
            del self._by_entry[grant.entry]

    def lift(
        self,
        found: list[Violation],
        attempt: Attempt,
        requirements: dict[str, ApprovalRequirement],
        reader: PatternReader,
    ) -> tuple[Grant, ...]:
        """Remove the violations that grants certainly lift; return those grants.

        They lift *ask* alone, as long as their approvers would still be enough.
        """
        if not self._grants:
            return ()
        used: dict[str, Grant] = {}
        for violation in tuple(found):
            grant = self._find(violation, attempt, requirements.get(violation.id), reader)
            if grant is not None:
                found.remove(violation)
                used[grant.id] = grant
        return tuple(used.values())

    def _find(
        self,
        violation: Violation,
        attempt: Attempt,
        requirement: ApprovalRequirement | None,
        reader: PatternReader,
    ) -> Grant | None:
        if violation.effect is not Effect.ASK or attempt.lacks_arguments:
            return None
        for grant in self._by_entry.get(violation.id, {}).values():
            if (
                not grant.is_expired(attempt.at)
                and _is_in_scope(grant, attempt.session)
                and _satisfies(grant, requirement)
                and _covers(grant.pattern, attempt, reader)
            ):
                return grant
        return None


def _is_in_scope(grant: Grant, session: SessionState) -> bool:
    if grant.pattern.cwd != session.cel_session["cwd"]:
        return False
    kind, _, name = grant.scope.partition(":")
    if kind == "session":
        return name == session.id and grant.run == session.started_at
    return kind in session.scope_keys and name == session.scope_keys[kind]


def _satisfies(grant: Grant, requirement: ApprovalRequirement | None) -> bool:
    """Whether the policy would still let these approvers make a grant of this kind."""
    approvers = grant.approvers
    if requirement is None:
        return bool(approvers)
    labels = requirement.labels
    fitting = [by for by, given in approvers.items() if not labels or not labels.isdisjoint(given)]
    return len(fitting) >= requirement.approvers and grant.remember in requirement.remember


def _covers(pattern: CallPattern, attempt: Attempt, reader: PatternReader) -> bool:
    if pattern.tool != attempt.tool or pattern.server != attempt.server:
        return False
    if pattern.fingerprint:
        return pattern.fingerprint == attempt.approval_fingerprint
    return reader.covers(pattern, attempt.args, attempt.session.cel_session["cwd"])


def name_scope(request: GrantRequest, session: SessionState) -> str:
    """Return where a grant holds. `ValueError` if the session has no agent, user or project."""
    scope = request.scope
    if scope == "session":
        return f"session:{session.id}"
    name = session.scope_keys[scope]
    if scope != "global" and not name:
        raise ValueError(f"`scope` is `{scope}`, and the session has no {scope}: name one")
    return f"{scope}:{name}"


def build_grants(
    session: SessionState,
    call: Refused,
    pattern: CallPattern,
    entries: Iterable[str],
    given: GivenApproval,
    requirements: dict[str, ApprovalRequirement],
) -> tuple[Grant, ...]:
    """Return the grants that one more approval completes, one for each of the `entries` that asked.

    All approvers must want the same to be remembered; the earliest time at which one of their
    grants would expire counts. Those who only approved the call count for the call. `ValueError` if
    an entry does not let this be remembered.
    """
    request = given.request
    if request is None or given.at is None:
        return ()
    approvals = session.approvals
    fingerprint = call.exact_fingerprint or call.fingerprint
    if fingerprint not in approvals.requests:
        return ()
    earlier = approvals.received.get(fingerprint, ())
    agreeing = [
        one
        for one in (*(one for one in earlier if one.by != given.by), given)
        if one.request is not None
        and (one.request.remember, one.request.scope) == (request.remember, request.scope)
    ]
    scope = name_scope(request, session)
    grants = []
    for entry in entries:
        requirement = requirements.get(entry)
        if requirement is not None and request.remember not in requirement.remember:
            raise ValueError(f"`{entry}` lets no approval be remembered by its {request.remember}")
        counted = approvals.find_counted(fingerprint, agreeing, requirement, given.at)
        if not counted or len(counted) < (1 if requirement is None else requirement.approvers):
            continue
        expires_at = min(one.request.expires_at for one in counted if one.request is not None)
        text = "\x1f".join((session.id, call.call, entry, scope, str(given.at)))
        grants.append(
            Grant(
                id="g" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest(),
                entry=entry,
                scope=scope,
                remember=request.remember,
                pattern=pattern,
                approvers={one.by: tuple(sorted(one.labels)) for one in counted},
                granted_at=given.at,
                expires_at=expires_at,
                session=session.id,
                call=call.call,
                run=session.started_at if request.scope == "session" else None,
            )
        )
    return tuple(grants)

"""Checks calls against learned constraints, and derives observations from outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from policyguard.compiler.build.learning import LearnEntry
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.messages import format_times, quote_value
from policyguard.evaluator.session_state import SessionState
from policyguard.learned.constraint_set import CALL_KEY, ConstraintSet
from policyguard.model.constraint import Constraint, Observation
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ExpressionError
from policyguard.model.outcome import Outcome


class BanKey(msgspec.Struct, frozen=True):
    """A scope and key under which a constraint may ban a call."""

    entry: LearnEntry
    scope: str
    key: str
    point: dict[str, Any]
    label: str = ""

    @property
    def is_session_scoped(self) -> bool:
        """Whether constraints under it belong to one session."""
        return self.entry.scope == "session"


class Learner:
    """The policy's `learn` sections, applied to calls.

    `entries` are by signature; the one with an empty id is for all others. `digest` fingerprints
    values of calls, `redact` masks secrets in errors.
    """

    def __init__(
        self,
        entries: dict[str, LearnEntry],
        unreported_after: int,
        digest: Callable[[str], str],
        redact: Callable[[str], str],
    ) -> None:
        self._entries = entries
        # If only single calls are banned, one look-up shows that a call is not.
        self.only_call_bans = all(
            entry.ban == "call" and entry.ignores_arguments for entry in entries.values()
        )
        self.is_memory_complete = True
        self._unreported_after = unreported_after
        self._digest = digest
        self._redact = redact

    def use_shared_store(self) -> None:
        """Take into account that other processes learn, too."""
        by_session = all(entry.scope == "session" for entry in self._entries.values())
        self.is_memory_complete = self.only_call_bans and by_session

    def check(
        self, constraint_set: ConstraintSet, attempt: Attempt
    ) -> tuple[list[Violation], list[str]]:
        """Return violations for a call, and the ids of the constraints that it probes."""
        violations: list[Violation] = []
        probes: list[str] = []
        if self.has_no_evidence_on(constraint_set, attempt):
            return violations, probes
        for ban_key in self._ban_keys(attempt):
            for constraint in constraint_set.on_key(ban_key.scope, ban_key.key):
                if constraint.learn != ban_key.entry.name:
                    continue
                result = constraint_set.check(
                    constraint,
                    ban_key.entry.settings,
                    ban_key.point,
                    changed=_has_changed_since(ban_key, attempt, constraint),
                    at=attempt.at,
                    probe_timeout=self._unreported_after,
                )
                if result.refused:
                    violations.append(_build_violation(constraint, result.confidence))
                elif result.probe:
                    probes.append(constraint.id)
        return violations, probes

    def observe(self, attempt: Attempt, outcome: Outcome) -> Iterator[Observation]:
        """Yield what an outcome teaches: nothing unless it is a success or the agent's failure."""
        if outcome.state in ("pending", "cancelled"):
            return
        if outcome.ok:
            for ban_key in self._ban_keys(attempt):
                yield self._observation(ban_key, attempt, ok=True)
            return
        entry = self._entries.get(outcome.signature, self._entries[""])
        if outcome.blame == "harness" or outcome.blame not in entry.blame:
            return
        failure = {
            # An error without a signature is one by itself.
            "signature": outcome.signature or f"error:{outcome.error_fingerprint}",
            "tool": attempt.tool,
            "server": attempt.server,
            "batch": attempt.batch,
            "error_fingerprint": outcome.error_fingerprint,
            "error": quote_value(outcome.error, self._redact),
        }
        for ban_key in self._failure_keys(entry, attempt, outcome.signature):
            label = quote_value(ban_key.label, self._redact) if ban_key.label else ""
            yield self._observation(ban_key, attempt, ok=False, label=label, **failure)

    def _observation(
        self, ban_key: BanKey, attempt: Attempt, *, ok: bool, **failure: str
    ) -> Observation:
        return Observation(
            learn=ban_key.entry.name,
            scope=ban_key.scope,
            key=ban_key.key,
            evidence_key=self._evidence_key(ban_key, attempt, ok=ok),
            ok=ok,
            point=ban_key.point,
            seq=attempt.session.state_changes.seq + 1,
            last_change=_last_change(ban_key, attempt),
            **failure,
        )

    def has_no_evidence_on(self, constraint_set: ConstraintSet, attempt: Attempt) -> bool:
        """Whether it is cheap to see that nothing learned concerns a call."""
        known = constraint_set.scope_counts
        return not known or (
            self.only_call_bans and attempt.fingerprint not in constraint_set.known_calls
        )

    def _ban_keys(self, attempt: Attempt) -> Iterator[BanKey]:
        """Yield all keys under which some entry of the policy could ban a call.

        An entry whose scope or key fails to evaluate for this call is skipped.
        """
        seen: set[tuple[str, str, str]] = set()
        for entry in self._entries.values():
            try:
                keys = list(self._entry_keys(entry, attempt, entry.parameters))
            except ExpressionError as error:
                attempt.add_error("learn", error)
                continue
            for ban_key in keys:
                identity = (entry.name, ban_key.scope, ban_key.key)
                if identity not in seen:
                    seen.add(identity)
                    yield ban_key

    def _failure_keys(
        self, entry: LearnEntry, attempt: Attempt, signature: str
    ) -> Iterable[BanKey]:
        """Return what a failure counts against: a region of parameters, else what `ban` names."""
        try:
            keys = list(self._entry_keys(entry, attempt, [signature]))
        except ExpressionError as error:
            attempt.add_error("learn", error)
            return []
        regions = [ban_key for ban_key in keys if ban_key.point]
        if regions:
            return regions
        # With several targets, it is unknown which of them failed.
        return keys if len(keys) == 1 else []

    def _entry_keys(
        self, entry: LearnEntry, attempt: Attempt, signatures: Iterable[str]
    ) -> Iterator[BanKey]:
        if attempt.lacks_arguments and not entry.ignores_arguments:
            raise ExpressionError(
                "nothing is learned from the arguments of this call: it was made before the "
                "session was resumed, and the journal keeps none (use `journal: {args: keep}`)"
            )
        scope = self._scope(entry, attempt)
        for signature in signatures:
            names = entry.parameters.get(signature, ())
            point = {name: attempt.args[name] for name in names if name in attempt.args}
            if point:
                yield BanKey(entry, scope, f"parameters:{attempt.full_name}:{signature}", point)
        for key in self._key_parts(entry, attempt):
            yield BanKey(entry, scope, *key)

    def _key_parts(
        self, entry: LearnEntry, attempt: Attempt
    ) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Yield what `ban` or `key` makes of a call: a key, no parameters, and a label."""
        if entry.key is not None:
            value = str(entry.key(attempt.activation))
            yield f"key:{self._digest(value)}", {}, value
        elif entry.ban == "call":
            yield f"{CALL_KEY}{attempt.fingerprint}", {}, ""
        elif entry.ban == "tool":
            yield f"tool:{attempt.full_name}", {}, ""
        elif entry.ban == "class":
            if attempt.class_:
                yield f"class:{attempt.class_}", {}, ""
        elif attempt.class_ not in entry.exempt_classes:
            for target in dict.fromkeys(attempt.targets):
                yield f"target:{self._digest(target)}", {}, target

    def _scope(self, entry: LearnEntry, attempt: Attempt) -> str:
        scope = _scope_id(entry.scope, attempt.session)
        if entry.scope_key is None:
            return scope
        return f"{scope}\x1f{self._digest(str(entry.scope_key(attempt.activation)))}"

    def _evidence_key(self, ban_key: BanKey, attempt: Attempt, *, ok: bool) -> str:
        """Return the key under which evidence is counted: the ban key, or `count_by`."""
        entry = ban_key.entry
        if entry.count_by is None or (ok and entry.reads_outcome):
            return ban_key.key
        try:
            return f"by:{self._digest(str(entry.count_by(attempt.activation)))}"
        except ExpressionError as error:
            if not ok:  # a success without a key refutes nothing
                attempt.add_error("learn/count_by", error)
            return ban_key.key


def _has_changed_since(ban_key: BanKey, attempt: Attempt, constraint: Constraint) -> bool:
    """Whether another call may have changed state since the constraint was confirmed.

    Completions of this session are compared by number, those of other sessions by time; without a
    time, state may have changed. For a constraint of this session a new turn is a change, too, and
    so is a wait: what was asked for too early may be there now.
    """
    session = attempt.session
    changes, fingerprint = session.state_changes, attempt.likeness
    confirmed = session.confirmed_constraints.get(constraint.id, 0)
    if ban_key.is_session_scoped and changes.turn_seq > confirmed:
        return _is_later(changes.turn_at, constraint)
    if ban_key.is_session_scoped and changes.wait_seq > confirmed:
        return _is_later(changes.wait_at, constraint)
    return changes.last_change_except(fingerprint) > confirmed and _is_later(
        changes.last_change_time_except(fingerprint), constraint
    )


def _is_later(at: int | None, constraint: Constraint) -> bool:
    return at is None or constraint.confirmed_at is None or at >= constraint.confirmed_at


def _last_change(ban_key: BanKey, attempt: Attempt) -> int:
    """Return the number of the last change that may have removed the cause of a failure."""
    changes = attempt.session.state_changes
    since = changes.last_change_except(attempt.likeness)
    if ban_key.is_session_scoped:
        return max(since, changes.turn_seq, changes.wait_seq)
    return since


def session_scope(session: str) -> str:
    """Return the scope of what a session learns for itself."""
    return f"session:{session}"


def _scope_id(kind: str, session: SessionState) -> str:
    return session_scope(session.id) if kind == "session" else f"{kind}:{session.scope_keys[kind]}"


def _build_violation(constraint: Constraint, confidence: float) -> Violation:
    subject = {
        "call": "this call has",
        "target": "calls on this target have",
        "tool": "this tool has",
        "class": "calls of this kind have",
        "key": "calls of this kind have",
        "parameters": "these parameters, or smaller demands, have",
    }[constraint.key.partition(":")[0]]
    # The fingerprint of an error without a signature tells a reader nothing.
    signature = "" if constraint.signature.startswith("error:") else constraint.signature
    reason = ": ".join(filter(None, (signature, constraint.error)))
    reason = f" ({reason})" if reason else ""
    weakened = f"; confidence {confidence:.0%}" if confidence < 1 else ""
    return Violation(
        f"constraints/{constraint.id}",
        Effect.BLOCK,
        "learned",
        f"{subject} failed {format_times(constraint.count)}{reason}{weakened}",
        "fix the cause first (that lifts the ban), or try another approach",
        constraint.count,
        confidence=confidence,
        quotes=True,
    )

"""Where learning meets judging: what constraints say to a call, and what its outcome teaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from policyguard.compiler.build.learning import LearnEntry
from policyguard.evaluator.attempt import UNRECORDED_ARGS, Attempt
from policyguard.evaluator.messages import format_times, quote_value
from policyguard.evaluator.session_state import SessionState
from policyguard.learned.constraint_check import check
from policyguard.learned.constraint_set import ConstraintSet
from policyguard.model.constraint import Constraint, Observation
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ExpressionError
from policyguard.model.outcome import Outcome


class BanKey(msgspec.Struct, frozen=True):
    """One thing about a call that a constraint may be on: in which scope, under which key."""

    entry: LearnEntry
    scope: str
    key: str
    point: dict[str, Any]
    label: str = ""

    @property
    def is_session_scoped(self) -> bool:
        """Whether it is known in the session alone, which has learned it for itself."""
        return self.entry.scope == "session"


class Learner:
    """The policy's `learn`, at work.

    `entries` are what signatures teach, by id; the one with an empty name is for all others.
    `digest` stands for what a call says wherever it is kept; `redact` blots out of an error what
    nobody may see.
    """

    def __init__(
        self,
        entries: dict[str, LearnEntry],
        unreported_after: int,
        digest: Callable[[str], str],
        redact: Callable[[str], str],
    ) -> None:
        self._entries = entries
        # Where calls alone are banned, one look-up tells that nothing is known of one.
        self._only_call_bans = all(
            entry.ban == "call" and entry.ignores_arguments for entry in entries.values()
        )
        self._is_memory_complete = True
        self._unreported_after = unreported_after
        self._digest = digest
        self._redact = redact

    def use_shared_store(self) -> None:
        """Other processes learn too: what is not known here may be known to them."""
        by_session = all(entry.scope == "session" for entry in self._entries.values())
        self._is_memory_complete = self._only_call_bans and by_session

    def check(self, memory: ConstraintSet, attempt: Attempt) -> tuple[list[Violation], list[str]]:
        """Return the constraints that refuse the call, and those that let it through on trial."""
        violations: list[Violation] = []
        trials: list[str] = []
        if self.has_nothing_on(memory, attempt):
            return violations, trials
        for bound in self._ban_keys(attempt):
            for constraint in memory.on_key(bound.scope, bound.key):
                if constraint.learn != bound.entry.name:
                    continue
                answer = check(
                    memory,
                    constraint,
                    bound.entry.settings,
                    bound.point,
                    changed=_has_changed_since(bound, attempt, constraint),
                    at=attempt.at,
                    probe_timeout=self._unreported_after,
                )
                if answer.refused:
                    violations.append(_build_violation(constraint, answer.confidence))
                elif answer.probe:
                    trials.append(constraint.id)
        return violations, trials

    def observe(
        self,
        memory: ConstraintSet,
        attempt: Attempt,
        outcome: Outcome,
    ) -> Iterator[Observation]:
        """What an outcome teaches: a pending one nothing, nor ever the fault of the harness."""
        if outcome.state == "pending":
            return
        session = attempt.session
        seq = session.state_changes.seq + 1
        if outcome.ok:
            for bound in self._ban_keys(attempt):
                yield Observation(
                    learn=bound.entry.name,
                    scope=bound.scope,
                    key=bound.key,
                    evidence_key=self._evidence_key(bound, attempt, ok=True),
                    ok=True,
                    point=bound.point,
                    seq=seq,
                    last_change=_last_change(bound, attempt),
                )
            return
        entry = self._entries.get(outcome.signature, self._entries[""])
        if outcome.blame == "harness" or outcome.blame not in entry.blame:
            return
        # An error that no signature knows is known by itself.
        signature = outcome.signature or f"error:{outcome.error_fingerprint}"
        for bound in self._failure_keys(entry, attempt, outcome.signature):
            yield Observation(
                learn=entry.name,
                scope=bound.scope,
                key=bound.key,
                evidence_key=self._evidence_key(bound, attempt, ok=False),
                ok=False,
                signature=signature,
                tool=attempt.tool,
                server=attempt.server,
                point=bound.point,
                seq=seq,
                last_change=_last_change(bound, attempt),
                batch=attempt.batch,
                error_fingerprint=outcome.error_fingerprint,
                label=quote_value(bound.label, self._redact) if bound.label else "",
                error=quote_value(outcome.error, self._redact),
            )

    def has_nothing_on(
        self, memory: ConstraintSet, attempt: Attempt, *, include_evidence: bool = False
    ) -> bool:
        """Whether nothing is known that could be about a call, where that is cheap to tell."""
        if include_evidence and not self._is_memory_complete:
            return False
        if not memory.scope_counts:
            return True
        return self._only_call_bans and f"call:{attempt.fingerprint}" not in memory.scope_counts

    def _ban_keys(self, attempt: Attempt) -> Iterator[BanKey]:
        """Everything about a call that some entry of the policy could have banned.

        An entry whose scope or key cannot be told for this call says nothing about it, and the
        others still do.
        """
        seen: set[tuple[str, str, str]] = set()
        for entry in self._entries.values():
            try:
                found = list(self._entry_keys(entry, attempt, entry.parameters))
            except ExpressionError as error:
                attempt.add_error("learn", error)
                continue
            for bound in found:
                place = (entry.name, bound.scope, bound.key)
                if place not in seen:
                    seen.add(place)
                    yield bound

    def _failure_keys(
        self,
        entry: LearnEntry,
        attempt: Attempt,
        signature: str,
    ) -> Iterable[BanKey]:
        """What a failure speaks against: its region of parameters, or else what `ban` says."""
        try:
            found = list(self._entry_keys(entry, attempt, [signature]))
        except ExpressionError as error:
            attempt.add_error("learn", error)
            return []
        regions = [bound for bound in found if bound.point]
        if regions:
            return regions
        # Which of several targets was at fault cannot be told.
        return found if len(found) == 1 else []

    def _entry_keys(
        self,
        entry: LearnEntry,
        attempt: Attempt,
        signatures: Iterable[str],
    ) -> Iterator[BanKey]:
        if attempt.args is UNRECORDED_ARGS and not entry.ignores_arguments:
            raise ExpressionError(
                "nothing is learned by the arguments of a call that was made before the session "
                "was rebuilt: the journal did not keep them (`journal: {args: keep}` does)"
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
        """What `ban` or `key` makes of a call: keys, without what the call says, and a label."""
        if entry.key is not None:
            value = str(entry.key(attempt.activation))
            yield f"key:{self._digest(value)}", {}, value
        elif entry.ban == "call":
            yield f"call:{attempt.fingerprint}", {}, ""
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
        """By what an outcome is counted: what would be banned, or what `count_by` says."""
        entry = ban_key.entry
        if entry.count_by is None or (ok and entry.reads_outcome):
            return ban_key.key
        try:
            return f"by:{self._digest(str(entry.count_by(attempt.activation)))}"
        except ExpressionError as error:
            if not ok:  # a success that is counted by nothing has nothing to forget
                attempt.add_error("learn/count_by", error)
            return ban_key.key


def _has_changed_since(ban_key: BanKey, attempt: Attempt, constraint: Constraint) -> bool:
    """Whether another call has changed something for the session since the ban was confirmed.

    Its own completions are numbered; of what another session has learned only the time tells
    whether the change came later. Where there is no time, it may have. What it has learned for
    itself is open again with each turn.
    """
    session = attempt.session
    changes, fingerprint = session.state_changes, attempt.fingerprint
    confirmed = session.confirmed_constraints.get(constraint.id, 0)
    if ban_key.is_session_scoped and changes.turn_seq > confirmed:
        return _is_later(changes.turn_at, constraint)
    return changes.last_change_except(fingerprint) > confirmed and _is_later(
        changes.last_change_time_except(fingerprint), constraint
    )


def _is_later(at: int | None, constraint: Constraint) -> bool:
    return at is None or constraint.confirmed_at is None or at >= constraint.confirmed_at


def _last_change(ban_key: BanKey, attempt: Attempt) -> int:
    """The number of the last change that speaks against what had failed before."""
    changes = attempt.session.state_changes
    since = changes.last_change_except(attempt.fingerprint)
    return max(since, changes.turn_seq) if ban_key.is_session_scoped else since


def _scope_id(kind: str, session: SessionState) -> str:
    return f"{kind}:{session.id if kind == 'session' else session.scope_keys[kind]}"


def _build_violation(constraint: Constraint, confidence: float) -> Violation:
    what = {
        "call": "this call has",
        "target": "calls on this target have",
        "tool": "this tool has",
        "class": "calls of this kind have",
        "key": "calls of this kind have",
        "parameters": "these parameters, or smaller demands, have",
    }[constraint.key.partition(":")[0]]
    # Errors without a signature are told apart by a fingerprint, which tells a reader nothing.
    named = "" if constraint.signature.startswith("error:") else constraint.signature
    why = ": ".join(filter(None, (named, constraint.error)))
    why = f" ({why})" if why else ""
    return Violation(
        f"constraints/{constraint.id}",
        Effect.BLOCK,
        "learned",
        f"{what} failed {format_times(constraint.count)}{why}; confidence {confidence:.0%}",
        "change something about the cause first: that opens it again; or take another way",
        constraint.count,
        confidence=confidence,
    )

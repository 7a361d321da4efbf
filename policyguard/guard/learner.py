"""Where learning meets judging: what constraints say to a call, and what its outcome teaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from policyguard.compiler.learning import LearnEntry
from policyguard.evaluator.attempt import LOST, Attempt
from policyguard.evaluator.session import SessionState
from policyguard.evaluator.wording import show, times
from policyguard.learned.binding import ask
from policyguard.learned.memory import Memory
from policyguard.model.constraint import Constraint, Lesson
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ExpressionError
from policyguard.model.outcome import Outcome


class Bound(msgspec.Struct, frozen=True):
    """One thing about a call that a constraint may be on: in which scope, under which key."""

    entry: LearnEntry
    scope: str
    key: str
    point: dict[str, Any]
    label: str = ""

    @property
    def own(self) -> bool:
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
        patience: int,
        digest: Callable[[str], str],
        redact: Callable[[str], str],
    ) -> None:
        self._entries = entries
        # Where calls alone are banned, one look-up tells that nothing is known of one.
        self._plain = all(entry.ban == "call" and entry.plain for entry in entries.values())
        self._alone = True
        self._patience = patience
        self._digest = digest
        self._redact = redact

    def share(self) -> None:
        """Other processes learn too: what is not known here may be known to them."""
        by_session = all(entry.scope == "session" for entry in self._entries.values())
        self._alone = self._plain and by_session

    def judge(self, memory: Memory, attempt: Attempt) -> tuple[list[Violation], list[str]]:
        """Return the constraints that refuse the call, and those that let it through on trial."""
        violations: list[Violation] = []
        trials: list[str] = []
        if self.knows_nothing(memory, attempt):
            return violations, trials
        for bound in self._bounds(attempt):
            for constraint in memory.about(bound.scope, bound.key):
                if constraint.learn != bound.entry.name:
                    continue
                answer = ask(
                    memory,
                    constraint,
                    bound.entry.teaching,
                    bound.point,
                    changed=_changed(bound, attempt, constraint),
                    at=attempt.at,
                    patience=self._patience,
                )
                if answer.refused:
                    violations.append(_violation(constraint, answer.confidence))
                elif answer.trial:
                    trials.append(constraint.id)
        return violations, trials

    def lessons(
        self,
        memory: Memory,
        attempt: Attempt,
        outcome: Outcome,
    ) -> Iterator[Lesson]:
        """What an outcome teaches: a pending one nothing, nor ever the fault of the harness."""
        if outcome.state == "pending":
            return
        session = attempt.session
        seq = session.changes.seq + 1
        if outcome.ok:
            for bound in self._bounds(attempt):
                yield Lesson(
                    learn=bound.entry.name,
                    scope=bound.scope,
                    key=bound.key,
                    counted=self._counted(bound, attempt, ok=True),
                    ok=True,
                    point=bound.point,
                    seq=seq,
                    since=_since(bound, attempt),
                )
            return
        entry = self._entries.get(outcome.signature, self._entries[""])
        if outcome.blame == "harness" or outcome.blame not in entry.blame:
            return
        # An error that no signature knows is known by itself.
        signature = outcome.signature or f"error:{outcome.failure}"
        for bound in self._taught(entry, attempt, outcome.signature):
            yield Lesson(
                learn=entry.name,
                scope=bound.scope,
                key=bound.key,
                counted=self._counted(bound, attempt, ok=False),
                ok=False,
                signature=signature,
                tool=attempt.tool,
                server=attempt.server,
                point=bound.point,
                seq=seq,
                since=_since(bound, attempt),
                batch=attempt.batch,
                failure=outcome.failure,
                label=show(bound.label, self._redact) if bound.label else "",
                error=show(outcome.error, self._redact),
            )

    def knows_nothing(self, memory: Memory, attempt: Attempt, *, evidence: bool = False) -> bool:
        """Whether nothing is known that could be about a call, where that is cheap to tell."""
        if evidence and not self._alone:
            return False
        if not memory.named:
            return True
        return self._plain and f"call:{attempt.fingerprint}" not in memory.named

    def _bounds(self, attempt: Attempt) -> Iterator[Bound]:
        """Everything about a call that some entry of the policy could have banned.

        An entry whose scope or key cannot be told for this call says nothing about it, and the
        others still do.
        """
        seen: set[tuple[str, str, str]] = set()
        for entry in self._entries.values():
            try:
                found = list(self._of(entry, attempt, entry.parameters))
            except ExpressionError as error:
                attempt.fault("learn", error)
                continue
            for bound in found:
                place = (entry.name, bound.scope, bound.key)
                if place not in seen:
                    seen.add(place)
                    yield bound

    def _taught(
        self,
        entry: LearnEntry,
        attempt: Attempt,
        signature: str,
    ) -> Iterable[Bound]:
        """What a failure speaks against: its region of parameters, or else what `ban` says."""
        try:
            found = list(self._of(entry, attempt, [signature]))
        except ExpressionError as error:
            attempt.fault("learn", error)
            return []
        regions = [bound for bound in found if bound.point]
        if regions:
            return regions
        # Which of several targets was at fault cannot be told.
        return found if len(found) == 1 else []

    def _of(
        self,
        entry: LearnEntry,
        attempt: Attempt,
        signatures: Iterable[str],
    ) -> Iterator[Bound]:
        if attempt.args is LOST and not entry.plain:
            raise ExpressionError(
                "nothing is learned by the arguments of a call that was made before the session "
                "was rebuilt: the journal did not keep them (`journal: {args: keep}` does)"
            )
        scope = self._scope(entry, attempt)
        for signature in signatures:
            names = entry.parameters.get(signature, ())
            point = {name: attempt.args[name] for name in names if name in attempt.args}
            if point:
                yield Bound(entry, scope, f"parameters:{attempt.full_name}:{signature}", point)
        for key in self._keys(entry, attempt):
            yield Bound(entry, scope, *key)

    def _keys(
        self, entry: LearnEntry, attempt: Attempt
    ) -> Iterator[tuple[str, dict[str, Any], str]]:
        """What `ban` or `key` makes of a call: keys, without what the call says, and a label."""
        if entry.key is not None:
            value = str(entry.key(attempt.view))
            yield f"key:{self._digest(value)}", {}, value
        elif entry.ban == "call":
            yield f"call:{attempt.fingerprint}", {}, ""
        elif entry.ban == "tool":
            yield f"tool:{attempt.full_name}", {}, ""
        elif entry.ban == "class":
            if attempt.class_:
                yield f"class:{attempt.class_}", {}, ""
        elif attempt.class_ not in entry.spared:
            for target in dict.fromkeys(attempt.targets):
                yield f"target:{self._digest(target)}", {}, target

    def _scope(self, entry: LearnEntry, attempt: Attempt) -> str:
        scope = _scope_of(entry.scope, attempt.session)
        if entry.scope_key is None:
            return scope
        return f"{scope}\x1f{self._digest(str(entry.scope_key(attempt.view)))}"

    def _counted(self, bound: Bound, attempt: Attempt, *, ok: bool) -> str:
        """By what an outcome is counted: what would be banned, or what `count_by` says."""
        entry = bound.entry
        if entry.count_by is None or (ok and entry.by_outcome):
            return bound.key
        try:
            return f"by:{self._digest(str(entry.count_by(attempt.view)))}"
        except ExpressionError as error:
            if not ok:  # a success that is counted by nothing has nothing to forget
                attempt.fault("learn/count_by", error)
            return bound.key


def _changed(bound: Bound, attempt: Attempt, constraint: Constraint) -> bool:
    """Whether another call has changed something for the session since the ban was confirmed.

    Its own completions are numbered; of what another session has learned only the time tells
    whether the change came later. Where there is no time, it may have. What it has learned for
    itself is open again with each turn.
    """
    session = attempt.session
    changes, fingerprint = session.changes, attempt.fingerprint
    confirmed = session.confirmed.get(constraint.id, 0)
    if bound.own and changes.turned > confirmed:
        return _later(changes.turned_at, constraint)
    return changes.since(fingerprint) > confirmed and _later(
        changes.since_at(fingerprint), constraint
    )


def _later(at: int | None, constraint: Constraint) -> bool:
    return at is None or constraint.confirmed_at is None or at >= constraint.confirmed_at


def _since(bound: Bound, attempt: Attempt) -> int:
    """The number of the last change that speaks against what had failed before."""
    changes = attempt.session.changes
    since = changes.since(attempt.fingerprint)
    return max(since, changes.turned) if bound.own else since


def _scope_of(kind: str, session: SessionState) -> str:
    return f"{kind}:{session.id if kind == 'session' else session.scopes[kind]}"


def _violation(constraint: Constraint, confidence: float) -> Violation:
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
        f"{what} failed {times(constraint.count)}{why}; confidence {confidence:.0%}",
        "change something about the cause first: that opens it again; or take another way",
        constraint.count,
        confidence=confidence,
    )

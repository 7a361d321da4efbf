"""Learned constraints and the evidence for more, each found by a dictionary access."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from policyguard.learned.learn_settings import LearnSettings
from policyguard.learned.parameter_region import count_dominated, drop_refuted
from policyguard.model.constraint import Constraint, Evidence, Observation

CALL_KEY = "call:"
"""Begins the keys of single calls; their fingerprint follows."""
MAX_SOURCES = 8
"""How many calls a constraint names as its sources, and how many batches evidence remembers."""


class CheckResult(msgspec.Struct, frozen=True):
    """Whether a constraint refuses a call or admits it as a probe; neither if it is silent."""

    refused: bool
    probe: bool
    confidence: float


NOT_BINDING = CheckResult(refused=False, probe=False, confidence=0.0)


class ConstraintSet(msgspec.Struct, eq=False, kw_only=True):
    """Constraints and evidence, within caps: the least recently used evidence goes first.

    `scope_counts` says in how many scopes anything is known of a key, `known_calls` of which single
    calls something is, by fingerprint. `changed_ids` are constraints changed since it was last
    cleared, for copies kept elsewhere.
    """

    max_constraints: int
    max_evidence: int
    constraints: dict[str, Constraint] = msgspec.field(default_factory=dict)
    scope_counts: dict[str, int] = msgspec.field(default_factory=dict)
    known_calls: set[str] = msgspec.field(default_factory=set)
    evidence_count: int = 0
    changed_ids: set[str] = msgspec.field(default_factory=set)
    _by_key: dict[tuple[str, str], dict[str, Constraint]] = msgspec.field(default_factory=dict)
    _in_scope: dict[str, dict[str, None]] = msgspec.field(default_factory=dict)
    _evidence: dict[tuple[str, str], dict[str, Evidence]] = msgspec.field(default_factory=dict)
    _revoked: dict[str, None] = msgspec.field(default_factory=dict)
    _probes: dict[str, int | None] = msgspec.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.constraints)

    def __iter__(self) -> Iterator[Constraint]:
        return iter(tuple(self.constraints.values()))

    def get(self, id_: str) -> Constraint | None:
        """Return the constraint with an id."""
        return self.constraints.get(id_)

    def by_confirmation(self) -> tuple[Constraint, ...]:
        """Return all constraints, the latest confirmed last."""
        return tuple(sorted(self, key=lambda constraint: constraint.confirmed_at or 0))

    def evidence(self) -> Iterable[Evidence]:
        """Return all evidence."""
        return tuple(piece for pieces in self._evidence.values() for piece in pieces.values())

    def evidence_for(self, scope: str, evidence_key: str) -> list[Evidence]:
        """Return the evidence under a key, one piece a signature."""
        return list(self._evidence.get((scope, evidence_key), {}).values())

    def put_evidence(self, piece: Evidence) -> None:
        """Set the evidence of a key and signature."""
        pieces = self._touch_evidence((piece.scope, piece.evidence_key))
        self.evidence_count += piece.signature not in pieces
        pieces[piece.signature] = piece
        if self.evidence_count > self.max_evidence:
            self.forget_evidence(*next(iter(self._evidence)))

    def forget_evidence(self, scope: str, evidence_key: str) -> None:
        """Forget the evidence under a key."""
        pieces = self._evidence.pop((scope, evidence_key), None)
        if pieces is not None:
            self.evidence_count -= len(pieces)
            self._remove_scope(evidence_key)

    def _touch_evidence(self, scope_and_key: tuple[str, str]) -> dict[str, Evidence]:
        """Return the evidence under a key, and make it the most recently used."""
        pieces = self._evidence.pop(scope_and_key, None)
        if pieces is None:
            pieces = {}
            self._add_scope(scope_and_key[1])
        self._evidence[scope_and_key] = pieces
        return pieces

    def _add_scope(self, key: str) -> None:
        self.scope_counts[key] = self.scope_counts.get(key, 0) + 1
        if key.startswith(CALL_KEY):
            self.known_calls.add(key[len(CALL_KEY) :])

    def _remove_scope(self, key: str) -> None:
        if self.scope_counts[key] == 1:
            del self.scope_counts[key]
            if key.startswith(CALL_KEY):
                self.known_calls.discard(key[len(CALL_KEY) :])
        else:
            self.scope_counts[key] -= 1

    def revoked(self) -> tuple[str, ...]:
        """Return the ids of revoked constraints."""
        return tuple(self._revoked)

    def revoke(self, id_: str) -> Constraint | None:
        """Remove a constraint, and never learn it again."""
        constraint = self.remove(id_)
        self._revoked[id_] = None
        if len(self._revoked) > self.max_constraints:
            del self._revoked[next(iter(self._revoked))]
        return constraint

    def on_key(self, scope: str, key: str) -> Collection[Constraint]:
        """Return the constraints on a key in a scope."""
        found = self._by_key.get((scope, key))
        return found.values() if found else ()

    def put(self, constraint: Constraint) -> None:
        """Set the constraint with this id."""
        self._in_scope.setdefault(constraint.scope, {})[constraint.id] = None
        self.constraints[constraint.id] = constraint
        scope_and_key = constraint.scope, constraint.key
        if scope_and_key not in self._by_key:
            self._by_key[scope_and_key] = {}
            self._add_scope(constraint.key)
        self._by_key[scope_and_key][constraint.id] = constraint
        self.changed_ids.add(constraint.id)

    def remove(self, id_: str) -> Constraint | None:
        """Remove a constraint."""
        constraint = self.constraints.pop(id_, None)
        if constraint is None:
            return None
        scope_and_key = constraint.scope, constraint.key
        del self._by_key[scope_and_key][id_]
        if not self._by_key[scope_and_key]:
            del self._by_key[scope_and_key]
            self._remove_scope(constraint.key)
        del self._in_scope[constraint.scope][id_]
        if not self._in_scope[constraint.scope]:
            del self._in_scope[constraint.scope]
        self.changed_ids.add(id_)
        self._probes.pop(id_, None)
        return constraint

    def remove_scope(self, scope: str) -> None:
        """Remove the constraints and the evidence of a scope, and of its keys (`scope_key`)."""
        keys = f"{scope}\x1f"
        for found in [one for one in self._in_scope if one == scope or one.startswith(keys)]:
            for id_ in tuple(self._in_scope[found]):
                self.remove(id_)
        for found, key in [
            one for one in self._evidence if one[0] == scope or one[0].startswith(keys)
        ]:
            self.forget_evidence(found, key)

    def begin_probe(self, id_: str, at: int | None) -> None:
        """Note a probe: until its outcome is known, the constraint admits no other call."""
        self._probes[id_] = at

    def end_probe(self, id_: str) -> None:
        """End the probe: its call completed, or did not run."""
        self._probes.pop(id_, None)

    def is_probing(self, id_: str, at: int | None, probe_timeout: int) -> bool:
        """Whether a probe is under way; it is over after `probe_timeout` ns without an outcome."""
        if id_ not in self._probes:
            return False
        began_at = self._probes[id_]
        return at is None or began_at is None or at - began_at < probe_timeout

    def check(
        self,
        constraint: Constraint,
        settings: LearnSettings,
        point: Mapping[str, Any],
        *,
        changed: bool,
        at: int | None,
        probe_timeout: int,
    ) -> CheckResult:
        """Check a call that has the constraint's key.

        `changed`: another call has changed state since the constraint was confirmed, and may have
        fixed the cause. `probe_timeout` is how long (ns) a probe may take.
        """
        decay = settings.decay
        if decay.is_expired(constraint, at) or (changed and settings.resets_on_change):
            return NOT_BINDING
        if constraint.points and (
            count_dominated(point, constraint.points, constraint.direction) < settings.corroborate
        ):
            return NOT_BINDING
        confidence = decay.confidence(constraint, at)
        is_due = decay.half_life is not None and confidence <= decay.probe_below
        probe = is_due and not self.is_probing(constraint.id, at, probe_timeout)
        return CheckResult(refused=not probe, probe=probe, confidence=confidence)

    def learn(
        self,
        observation: Observation,
        settings: LearnSettings,
        session: str,
        call: str,
        at: int | None,
    ) -> str:
        """Learn from one outcome. Return the id of a new or confirmed constraint, else empty."""
        if observation.ok:
            self._learn_success(observation, settings)
            return ""
        return self._learn_failure(observation, settings, session, f"{session}/{call}", at)

    def _learn_success(self, observation: Observation, settings: LearnSettings) -> None:
        """Remove constraints and evidence as far as a success refutes them."""
        if not settings.decay.forget_on_success:
            return
        for constraint in tuple(self.on_key(observation.scope, observation.key)):
            if constraint.learn != observation.learn:
                continue  # taught by another entry, which says what a success means
            if not constraint.points:
                self.remove(constraint.id)
                continue
            left = drop_refuted(constraint.points, observation.point, constraint.direction)
            if not left:
                self.remove(constraint.id)
            elif len(left) < len(constraint.points):
                self.put(msgspec.structs.replace(constraint, points=left, count=len(left)))
        for piece in self.evidence_for(observation.scope, observation.evidence_key):
            # A success below all failing points refutes none of them.
            left = drop_refuted(piece.points, observation.point, settings.direction)
            piece.points = tuple(dict(point) for point in left)
            if not piece.points:
                self._drop_evidence(piece.scope, piece.evidence_key, piece.signature)

    def _learn_failure(
        self,
        observation: Observation,
        settings: LearnSettings,
        session: str,
        source: str,
        at: int | None,
    ) -> str:
        id_ = constraint_id(observation)
        if id_ in self._revoked:
            return ""
        known = self.constraints.get(id_)
        if known is not None and not settings.decay.is_expired(known, at):
            self.put(_confirm(known, observation, settings, at))
            return id_
        evidence = self._add_evidence(observation, settings, session, source)
        if evidence is None or not _is_corroborated(evidence, observation, settings):
            return ""
        if not self._make_room(observation, settings, at):
            return ""
        self._drop_evidence(observation.scope, observation.evidence_key, observation.signature)
        self.put(
            Constraint(
                id=id_,
                kind="parameter_ban" if observation.point else "banned_strategy",
                learn=observation.learn,
                scope=observation.scope,
                key=observation.key,
                signature=observation.signature,
                tool=observation.tool,
                server=observation.server,
                count=evidence.count,
                learned_at=at,
                confirmed_at=at,
                taught_by=evidence.taught_by,
                points=evidence.points,
                direction=settings.direction,
                label=observation.label,
                error=observation.error,
            )
        )
        return id_

    def _make_room(self, observation: Observation, settings: LearnSettings, at: int | None) -> bool:
        """Whether there is room for one more constraint; expired ones are removed for it."""
        held = self._in_scope.get(observation.scope, {})
        if settings.max_constraints is not None and len(held) >= settings.max_constraints:
            for id_ in tuple(held):
                constraint = self.constraints[id_]
                if constraint.learn == observation.learn and settings.decay.is_expired(
                    constraint, at
                ):
                    self.remove(id_)
            if len(self._in_scope.get(observation.scope, {})) >= settings.max_constraints:
                return False
        return (
            constraint_id(observation) in self.constraints
            or len(self.constraints) < self.max_constraints
        )

    def _add_evidence(
        self, observation: Observation, settings: LearnSettings, session: str, source: str
    ) -> Evidence | None:
        """Count a failure; None if its batch is counted already."""
        pieces = self._touch_evidence((observation.scope, observation.evidence_key))
        evidence = pieces.get(observation.signature)
        if evidence is None:
            evidence = pieces[observation.signature] = Evidence(
                scope=observation.scope,
                evidence_key=observation.evidence_key,
                signature=observation.signature,
            )
            self.evidence_count += 1
            if self.evidence_count > self.max_evidence:
                self.forget_evidence(*next(iter(self._evidence)))
        may_be_fixed = evidence.session == session and evidence.seq <= observation.last_change
        is_other_error = (
            settings.same_error and evidence.error_fingerprint != observation.error_fingerprint
        )
        if not observation.point and (
            (settings.resets_on_change and may_be_fixed) or is_other_error
        ):
            evidence.count, evidence.taught_by, evidence.batches = 0, (), ()
        evidence.error_fingerprint = observation.error_fingerprint
        evidence.session, evidence.seq = session, observation.seq
        if observation.batch:
            batch = f"{session}\x1f{observation.batch}"
            if batch in evidence.batches:
                return None
            evidence.batches = (*evidence.batches, batch)[-MAX_SOURCES:]
        evidence.count += 1
        if len(evidence.taught_by) < MAX_SOURCES:
            evidence.taught_by = (*evidence.taught_by, source)
        if observation.point:
            evidence.points = _add_point(evidence.points, observation.point, settings)
        return evidence

    def _drop_evidence(self, scope: str, evidence_key: str, signature: str) -> None:
        pieces = self._evidence.get((scope, evidence_key), {})
        if pieces.pop(signature, None) is not None:
            self.evidence_count -= 1
        if not pieces:
            self.forget_evidence(scope, evidence_key)


MAX_POINTS = 64
"""Failing points that one parameter ban keeps."""


def _add_point(
    points: tuple[dict[str, Any], ...], point: dict[str, Any], settings: LearnSettings
) -> tuple[dict[str, Any], ...]:
    """Add a failing point, keeping at most `MAX_POINTS` without freeing what is banned.

    A point counts at most as often as it takes to corroborate itself. Where there are too many,
    drop one that enough others make redundant, else the new one.
    """
    if points.count(point) >= settings.corroborate:
        return points
    points = (*points, point)
    if len(points) <= MAX_POINTS:
        return points
    for index, candidate in enumerate(points):
        others = points[:index] + points[index + 1 :]
        if count_dominated(candidate, others, settings.direction) >= settings.corroborate:
            return others
    return points[:-1]


def constraint_id(observation: Observation) -> str:
    """Return the id of what an observation teaches, the same in every process."""
    text = "\x1f".join((observation.scope, observation.key, observation.signature))
    return "k" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _confirm(
    known: Constraint, observation: Observation, settings: LearnSettings, at: int | None
) -> Constraint:
    points = (
        _add_point(known.points, observation.point, settings) if observation.point else known.points
    )
    confirmed_at = known.confirmed_at if at is None else at
    return msgspec.structs.replace(
        known, count=known.count + 1, confirmed_at=confirmed_at, points=points
    )


def _is_corroborated(evidence: Evidence, observation: Observation, settings: LearnSettings) -> bool:
    if observation.point:
        return any(
            count_dominated(point, evidence.points, settings.direction) >= settings.corroborate
            for point in evidence.points
        )
    return evidence.count >= settings.corroborate

"""What has been learned: constraints by what they bind, evidence by what it counts.

A look-up is a dictionary access: it costs the same with none and with a million constraints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from policyguard.learned.confidence import expired
from policyguard.learned.region import refuted, standing
from policyguard.learned.teaching import Teaching
from policyguard.model.constraint import Constraint, Evidence, Lesson

REMEMBERED = 8
"""Calls that a constraint names as those that taught it; batches that evidence tells apart."""


class Memory:
    """Constraints and evidence, within caps: the least recently used evidence goes first.

    `constraints` has them by id, `pieces` counts the evidence, `named` tells of each key in how
    many scopes anything is known of it. `changed` holds the ids of
    constraints, and the keys of evidence, that have changed since it was last emptied: whoever
    keeps them elsewhere looks there.
    """

    __slots__ = (
        "_by_key",
        "_evidence",
        "_in_scope",
        "_revoked",
        "_trials",
        "changed",
        "constraints",
        "most",
        "most_evidence",
        "named",
        "pieces",
    )

    def __init__(self, *, most: int, most_evidence: int) -> None:
        self.most = most
        self.most_evidence = most_evidence
        self.constraints: dict[str, Constraint] = {}
        self._by_key: dict[tuple[str, str], dict[str, Constraint]] = {}
        self._in_scope: dict[str, dict[str, None]] = {}
        self._evidence: dict[tuple[str, str], dict[str, Evidence]] = {}
        self.named: dict[str, int] = {}
        self.pieces = 0
        self._revoked: dict[str, None] = {}
        self._trials: dict[str, int | None] = {}
        self.changed: set[str] = set()

    def __len__(self) -> int:
        return len(self.constraints)

    def __iter__(self) -> Iterator[Constraint]:
        return iter(tuple(self.constraints.values()))

    def get(self, id_: str) -> Constraint | None:
        """The constraint of an id."""
        return self.constraints.get(id_)

    def evidence(self) -> Iterable[Evidence]:
        """All evidence."""
        return tuple(piece for pieces in self._evidence.values() for piece in pieces.values())

    def evidence_of(self, scope: str, counted: str) -> list[Evidence]:
        """The evidence of one count, a piece a signature."""
        return list(self._evidence.get((scope, counted), {}).values())

    def put_evidence(self, piece: Evidence) -> None:
        """Remember a piece of evidence, in place of the one of its count and signature."""
        pieces = self._evidence_at((piece.scope, piece.counted))
        self.pieces += piece.signature not in pieces
        pieces[piece.signature] = piece
        if self.pieces > self.most_evidence:
            self.forget_evidence(*next(iter(self._evidence)))

    def forget_evidence(self, scope: str, counted: str) -> None:
        """Forget the evidence of one count."""
        pieces = self._evidence.pop((scope, counted), None)
        if pieces is not None:
            self.pieces -= len(pieces)
            self._forget_name(counted)

    def _evidence_at(self, place: tuple[str, str]) -> dict[str, Evidence]:
        """The evidence of one count, now the most recently used."""
        pieces = self._evidence.pop(place, None)
        if pieces is None:
            pieces = {}
            self._name(place[1])
        self._evidence[place] = pieces
        return pieces

    def _name(self, key: str) -> None:
        self.named[key] = self.named.get(key, 0) + 1

    def _forget_name(self, key: str) -> None:
        if self.named[key] == 1:
            del self.named[key]
        else:
            self.named[key] -= 1

    def revoked(self) -> tuple[str, ...]:
        """The ids that are not learned again."""
        return tuple(self._revoked)

    def revoke(self, id_: str) -> Constraint | None:
        """Forget a constraint for good: it is not learned again."""
        constraint = self.remove(id_)
        self._revoked[id_] = None
        if len(self._revoked) > self.most:
            del self._revoked[next(iter(self._revoked))]
        return constraint

    def about(self, scope: str, key: str) -> Iterable[Constraint]:
        """The constraints on a key in a scope."""
        found = self._by_key.get((scope, key))
        return found.values() if found else ()

    def put(self, constraint: Constraint) -> None:
        """Keep a constraint, in place of the one with its id."""
        self._in_scope.setdefault(constraint.scope, {})[constraint.id] = None
        self.constraints[constraint.id] = constraint
        place = constraint.scope, constraint.key
        if place not in self._by_key:
            self._by_key[place] = {}
            self._name(constraint.key)
        self._by_key[place][constraint.id] = constraint
        self.changed.add(constraint.id)

    def remove(self, id_: str) -> Constraint | None:
        """Forget a constraint."""
        constraint = self.constraints.pop(id_, None)
        if constraint is None:
            return None
        place = constraint.scope, constraint.key
        del self._by_key[place][id_]
        if not self._by_key[place]:
            del self._by_key[place]
            self._forget_name(constraint.key)
        del self._in_scope[constraint.scope][id_]
        if not self._in_scope[constraint.scope]:
            del self._in_scope[constraint.scope]
        self.changed.add(id_)
        self._trials.pop(id_, None)
        return constraint

    def begin_trial(self, id_: str, at: int | None) -> None:
        """A weakened ban has let a call through: nobody else's, until its outcome is known."""
        self._trials[id_] = at

    def end_trial(self, id_: str) -> None:
        """The call has come back, or never ran."""
        self._trials.pop(id_, None)

    def on_trial(self, id_: str, at: int | None, patience: int) -> bool:
        """Whether a trial is under way. One without an outcome for `patience` ns is over."""
        if id_ not in self._trials:
            return False
        begun = self._trials[id_]
        return at is None or begun is None or at - begun < patience

    def learn(
        self, lesson: Lesson, teaching: Teaching, session: str, call: str, at: int | None
    ) -> str:
        """Take one outcome into account.

        Returns the id of a constraint that is new or confirmed, or empty.
        """
        if lesson.ok:
            self._succeed(lesson, teaching)
            return ""
        return self._fail(lesson, teaching, session, f"{session}/{call}", at)

    def _succeed(self, lesson: Lesson, teaching: Teaching) -> None:
        """What was banned has worked: the ban is lifted, as far as the success refutes it."""
        if not teaching.weakening.forget_on_success:
            return
        for constraint in tuple(self.about(lesson.scope, lesson.key)):
            if constraint.learn != lesson.learn:
                continue  # another entry of the policy teaches it, and says what a success means
            if not constraint.points:
                self.remove(constraint.id)
                continue
            left = refuted(constraint.points, lesson.point, constraint.direction)
            if not left:
                self.remove(constraint.id)
            elif len(left) < len(constraint.points):
                self.put(msgspec.structs.replace(constraint, points=left, count=len(left)))
        for piece in tuple(self._evidence.get((lesson.scope, lesson.counted), {}).values()):
            # A call beyond which all is banned says nothing of the region when it stays below it.
            left = refuted(piece.points, lesson.point, teaching.direction)
            piece.points = tuple(dict(point) for point in left)
            if not piece.points:
                self._drop(piece.scope, piece.counted, piece.signature)

    def _fail(
        self, lesson: Lesson, teaching: Teaching, session: str, source: str, at: int | None
    ) -> str:
        id_ = constraint_id(lesson)
        if id_ in self._revoked:
            return ""
        known = self.constraints.get(id_)
        if known is not None and not expired(known, teaching.weakening, at):
            self.put(_confirmed(known, lesson, teaching, at))
            return id_
        evidence = self._gather(lesson, teaching, session, source)
        if evidence is None or not _corroborated(evidence, lesson, teaching):
            return ""
        if not self._room(lesson, teaching, at):
            return ""
        self._drop(lesson.scope, lesson.counted, lesson.signature)
        self.put(
            Constraint(
                id=id_,
                kind="parameter_ban" if lesson.point else "banned_strategy",
                learn=lesson.learn,
                scope=lesson.scope,
                key=lesson.key,
                signature=lesson.signature,
                tool=lesson.tool,
                server=lesson.server,
                count=evidence.count,
                learned_at=at,
                confirmed_at=at,
                taught_by=evidence.taught_by,
                points=evidence.points,
                direction=teaching.direction,
                label=lesson.label,
                error=lesson.error,
            )
        )
        return id_

    def _room(self, lesson: Lesson, teaching: Teaching, at: int | None) -> bool:
        """Whether one more constraint has its place. What has expired gives up its own."""
        held = self._in_scope.get(lesson.scope, {})
        if teaching.most is not None and len(held) >= teaching.most:
            for id_ in tuple(held):
                constraint = self.constraints[id_]
                if constraint.learn == lesson.learn and expired(constraint, teaching.weakening, at):
                    self.remove(id_)
            if len(self._in_scope.get(lesson.scope, {})) >= teaching.most:
                return False
        return constraint_id(lesson) in self.constraints or len(self.constraints) < self.most

    def _gather(
        self, lesson: Lesson, teaching: Teaching, session: str, source: str
    ) -> Evidence | None:
        """Count a failure; None where it is no observation of its own."""
        pieces = self._evidence_at((lesson.scope, lesson.counted))
        evidence = pieces.get(lesson.signature)
        if evidence is None:
            evidence = pieces[lesson.signature] = Evidence(
                scope=lesson.scope, counted=lesson.counted, signature=lesson.signature
            )
            self.pieces += 1
            if self.pieces > self.most_evidence:
                self.forget_evidence(*next(iter(self._evidence)))
        mended = evidence.session == session and evidence.seq <= lesson.since
        another = teaching.same_error and evidence.failure != lesson.failure
        if not lesson.point and ((teaching.reset and mended) or another):
            evidence.count, evidence.taught_by, evidence.batches = 0, (), ()
        evidence.failure = lesson.failure
        evidence.session, evidence.seq = session, lesson.seq
        if lesson.batch:
            batch = f"{session}\x1f{lesson.batch}"
            if batch in evidence.batches:
                return None
            evidence.batches = (*evidence.batches, batch)[-REMEMBERED:]
        evidence.count += 1
        if len(evidence.taught_by) < REMEMBERED:
            evidence.taught_by = (*evidence.taught_by, source)
        if lesson.point:
            evidence.points = _with(evidence.points, lesson.point, teaching)
        return evidence

    def _drop(self, scope: str, counted: str, signature: str) -> None:
        pieces = self._evidence.get((scope, counted), {})
        if pieces.pop(signature, None) is not None:
            self.pieces -= 1
        if not pieces:
            self.forget_evidence(scope, counted)


POINTS = 64
"""Failing points that one parameter ban remembers."""


def _with(
    points: tuple[dict[str, Any], ...], point: dict[str, Any], teaching: Teaching
) -> tuple[dict[str, Any], ...]:
    """The points and one more, at most `POINTS`, so that nothing banned becomes free.

    A point fails as often as it takes to corroborate it by itself. Where there are too many, one
    goes that lies beyond enough others: what it speaks against is banned without it. Where there
    is none, the new one is not kept.
    """
    if points.count(point) >= teaching.corroborate:
        return points
    points = (*points, point)
    if len(points) <= POINTS:
        return points
    for place, one in enumerate(points):
        others = points[:place] + points[place + 1 :]
        if standing(one, others, teaching.direction) >= teaching.corroborate:
            return others
    return points[:-1]


def constraint_id(lesson: Lesson) -> str:
    """The id of what a lesson teaches: the same on every process."""
    text = "\x1f".join((lesson.scope, lesson.key, lesson.signature))
    return "k" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _confirmed(known: Constraint, lesson: Lesson, teaching: Teaching, at: int | None) -> Constraint:
    points = _with(known.points, lesson.point, teaching) if lesson.point else known.points
    confirmed_at = known.confirmed_at if at is None else at
    return msgspec.structs.replace(
        known, count=known.count + 1, confirmed_at=confirmed_at, points=points
    )


def _corroborated(evidence: Evidence, lesson: Lesson, teaching: Teaching) -> bool:
    if lesson.point:
        return any(
            standing(point, evidence.points, teaching.direction) >= teaching.corroborate
            for point in evidence.points
        )
    return evidence.count >= teaching.corroborate

"""`marks`: which calls set and clear a mark.

A mark is cleared as soon as a matching call is admitted, and once more when that call returns; it
is set when a matching call has completed, unless it was cleared since that call was admitted: tests
that ran while a file was edited say nothing about the edit. With `on_error: set` it is the other
way about: where it is in doubt what came first, or whether a call clears the mark, it stays set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from policyguard.evaluator.activation import Expression, Selects
from policyguard.model.errors import ExpressionError
from policyguard.model.event import MarkChange

if TYPE_CHECKING:
    from policyguard.evaluator.attempt import Attempt

RUN_SCOPES = ("turn", "session")
"""The scopes that end with a run: a session and its sub-agents."""
SHARED_SCOPES = ("agent", "project")

ANY_KEY = "*"
"""Stands for a key that could not be computed, and so for every key."""


class CompiledMark(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A mark. `scope` is turn, session, agent or project, `within` nanoseconds until it expires.

    `key` computes the keys of a call that sets it; None for a bool (with `is_keyed` false), and for
    one that only the host sets. At most `keep` keys are kept. `sets_on_error`: doubt sets it.
    """

    name: str
    scope: str
    within: int | None
    is_keyed: bool
    key: Expression | None
    keep: int
    sets_on_error: bool
    digest: Callable[[str], str]

    @property
    def id(self) -> str:
        """The id of the entry."""
        return f"marks/{self.name}"

    @property
    def is_shared(self) -> bool:
        """Whether it is one of an agent or a project."""
        return self.scope in SHARED_SCOPES

    def digests(self, value: object) -> tuple[str, ...]:
        """Return the fingerprints of keys, each once. `ExpressionError` for what is no key."""
        if isinstance(value, str):
            return (self.digest(value),)
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise ExpressionError("a key is not a string or a list of strings")
        return tuple(dict.fromkeys(map(self.digest, value)))


class CompiledMarkEvent(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The calls that set or clear a mark; selectors on names are resolved into the plans.

    `key` computes the keys that a call clears; None: it clears all.
    """

    mark: CompiledMark
    selects: Selects | None
    when: Expression | None
    unless: Expression | None
    key: Expression | None = None

    def covers(self, attempt: Attempt) -> bool:
        """Whether the event covers a call. `ExpressionError` if that is undecidable."""
        activation = attempt.activation
        try:
            if self.selects is not None and not self.selects(activation):
                return False
        except ValueError as error:  # the arguments were not kept
            raise ExpressionError(str(error)) from None
        error_text = ""
        for name, condition, needed in (("when", self.when, True), ("unless", self.unless, False)):
            if condition is None:
                continue
            try:
                answer = condition(activation)
            except ExpressionError as error:
                error_text = error_text or str(error)
                continue
            if answer is not True and answer is not False:
                error_text = error_text or f"`{name}` is not a bool"
            elif answer is not needed:
                return False
        if error_text:
            raise ExpressionError(error_text)
        return True

    def find_cleared(self, attempt: Attempt) -> tuple[MarkChange, ...]:
        """Return what an admission of the call clears; all, or nothing, if that is undecidable."""
        mark = self.mark
        try:
            if not self.covers(attempt):
                return ()
            if self.key is not None:
                keys = mark.digests(self.key(attempt.activation))
                return tuple([MarkChange(mark.name, key) for key in keys])
        except ExpressionError as error:
            attempt.add_error(mark.id, error)
            if mark.sets_on_error:
                return ()
        return (MarkChange(mark.name),)

    def find_set(self, attempt: Attempt) -> tuple[MarkChange, ...]:
        """Return what a result of the call sets."""
        mark = self.mark
        try:
            if not self.covers(attempt):
                return ()
            if mark.key is None:
                return (MarkChange(mark.name),)
            keys = mark.digests(mark.key(attempt.activation))
            return tuple([MarkChange(mark.name, key) for key in keys])
        except ExpressionError as error:
            attempt.add_error(mark.id, error)
        if not mark.sets_on_error:
            return ()
        return (MarkChange(mark.name, ANY_KEY if mark.is_keyed else ""),)


def given_changes(
    marks: Mapping[str, CompiledMark], given: Iterable[str] | Mapping[str, Any]
) -> tuple[MarkChange, ...]:
    """Return what sets the marks that an example or a test gives: ids, or a map to their keys."""
    changes = []
    for name in given:
        keys = given[name] if isinstance(given, Mapping) else True
        if keys is True:
            changes.append(MarkChange(name))
        else:
            changes += [MarkChange(name, key) for key in marks[name].digests(keys)]
    return tuple(changes)


class MarkEvents(msgspec.Struct, frozen=True, eq=False):
    """The events of one kind of call that may set or clear marks."""

    setting: tuple[CompiledMarkEvent, ...]
    clearing: tuple[CompiledMarkEvent, ...]

    @property
    def are_shared(self) -> bool:
        """Whether one is of a mark of an agent or a project."""
        return any(one.mark.is_shared for one in (*self.setting, *self.clearing))

    def find_cleared(self, attempt: Attempt) -> tuple[MarkChange, ...]:
        """Return what an admission of the call clears."""
        return tuple([change for one in self.clearing for change in one.find_cleared(attempt)])

    def find_set(self, attempt: Attempt) -> tuple[MarkChange, ...]:
        """Return what a result of the call sets, but for what was cleared since its admission."""
        states = attempt.session.marks
        if states is None:
            return ()
        found = tuple(
            [
                change
                for one in self.setting
                for change in one.find_set(attempt)
                if one.mark.sets_on_error or not states.is_overtaken(attempt, change)
            ]
        )
        for mark in states.find_overflowing(attempt.session, found):
            attempt.add_error(
                mark.id,
                f"the mark has more than {mark.keep} keys (`keep`): "
                + (
                    "every key counts as set until the mark is cleared; raise `keep`"
                    if mark.sets_on_error
                    else "those that were set least recently have fallen out"
                ),
            )
        return found

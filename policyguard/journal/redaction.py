"""What is written of a call: `journal.args`, `journal.results` and `journal.redact` of a policy.

Only what a tool or a model said is redacted: arguments, targets, results, errors, metadata. What
policyguard derived from them (class, fingerprints, `keys`, `charges`, signature, blame,
lessons but for the error that they quote) is what state is rebuilt from, and stays; so does what
the host says of itself (names, tags).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from policyguard.engines.fingerprint import Fingerprinter, NotJsonError
from policyguard.model.constraint import Observation
from policyguard.model.event import Admitted, Completed, Ended, Event, Refused
from policyguard.model.policy import RedactionMode

Redactions = Mapping[type[Event], Callable[[Any], Event]]
"""By kind of event, what gives it as it is to be written: the same object where nothing is to be
hidden. Of kinds that are not there nothing ever is."""

NamedPattern = tuple[str, Callable[[str, str], str]]
"""A pattern's name, and how to put a text in place of what it finds (`Regex.replace`)."""

Object = dict[str, Any]
Redactors = tuple[Callable[[str], str], Callable[[Object], Object | None]]
"""What is written in place of a text, and of an object, that is not empty."""

FINGERPRINT_MARK = "#"
"""Begins a fingerprint; and is the key of the fingerprint of an object."""


class Redaction:
    """A policy's redaction, compiled: `by_kind` are pure functions of an event.

    *keep* blots out what `patterns` find, as `[name]`. *mask* leaves the shape: `[string]`,
    `[3 lines, 70 characters]`. *hash* leaves fingerprints: of arguments the call's own, of a text
    that of exactly this text. They are keyed, so that a short secret cannot be guessed from them.
    *drop* leaves nothing. `whole`: the fingerprint that a result has is that of all its text.
    """

    def __init__(
        self,
        *,
        args: RedactionMode,
        results: RedactionMode,
        patterns: Sequence[NamedPattern] = (),
        fingerprinter: Fingerprinter,
        fingerprint_is_complete: bool = False,
    ) -> None:
        self._patterns = tuple((f"[{name}]", replace) for name, replace in patterns)
        self._fingerprinter = fingerprinter
        self._args = args
        self._reuse_fingerprint = results == "hash" and fingerprint_is_complete
        self._redact_label, self._redact_args = self._redactors(args)
        self._redact_text, self._redact_meta = self._redactors(results)
        # What may have something to hide: a result does with its lessons, which quote arguments.
        self.by_event_type: dict[type[Event], Callable[[Any], Event]] = {}
        if args != "keep" or patterns:
            self.by_event_type |= {Admitted: self._redact_attempt, Refused: self._redact_attempt}
            self.by_event_type[Completed] = self._redact_result
        if results != "keep" or patterns:
            self.by_event_type |= {Completed: self._redact_result, Ended: self._redact_end}

    def _redact_attempt(self, event: Admitted | Refused) -> Event:
        args = event.args
        if args:
            if self._args == "hash":
                args = {
                    FINGERPRINT_MARK: FINGERPRINT_MARK
                    + (event.exact_fingerprint or event.fingerprint)
                }
            else:
                args = self._redact_args(args)
        targets = self._redact_targets(event.targets) if event.targets else event.targets
        like, numbers = event.loose_fingerprint, event.numbers
        if like and (self._args != "keep" or self._replace_matches(numbers) is not numbers):
            # Tolerant numbers are arguments too. Whoever goes on from this journal takes a call
            # with close numbers for a new one.
            like, numbers = "", ()
        if args is event.args and targets is event.targets and like is event.loose_fingerprint:
            return event
        return msgspec.structs.replace(
            event, args=args, targets=targets, loose_fingerprint=like, numbers=numbers
        )

    def _redact_targets(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        if self._args == "drop":
            return ()
        if self._args != "keep":
            return tuple(map(self._fingerprint_text, targets))
        told = tuple(map(self._replace_matches, targets))
        return targets if told == targets else told

    def _redact_result(self, event: Completed) -> Event:
        text = event.text
        if text:
            told = self._reuse_fingerprint and event.result_fingerprint
            text = FINGERPRINT_MARK + told if told else self._redact_text(text)
        error = self._redact_text(event.error) if event.error else event.error
        meta = self._redact_meta(event.meta) if event.meta else event.meta
        lessons = (
            tuple(map(self._redact_observation, event.observations))
            if event.observations
            else event.observations
        )
        same = text is event.text and error is event.error and meta is event.meta
        if same and lessons == event.observations:
            return event
        return msgspec.structs.replace(
            event, text=text, error=error, meta=meta or {}, observations=lessons
        )

    def _redact_end(self, event: Ended) -> Event:
        text = self._redact_text(event.text) if event.text else event.text
        error = self._redact_text(event.error) if event.error else event.error
        if text is event.text and error is event.error:
            return event
        return msgspec.structs.replace(event, text=text, error=error)

    def _redact_observation(self, lesson: Observation) -> Observation:
        """A lesson is derived, but for what it quotes: of the error, and of the arguments."""
        if not (lesson.error or lesson.label or lesson.point):
            return lesson
        # What was learned is in the store; a replay learns nothing from hidden arguments.
        point = self._replace_in_object(lesson.point) if self._args == "keep" else None
        return msgspec.structs.replace(
            lesson,
            error=self._redact_text(lesson.error) if lesson.error else "",
            label=self._redact_label(lesson.label) if lesson.label else "",
            point=point or {},
        )

    def _redactors(self, kept: RedactionMode) -> Redactors:
        match kept:
            case "keep":
                return self._replace_matches, self._replace_in_object
            case "mask":
                return _mask_text, self._mask_object
            case "hash":
                return self._fingerprint_text, self._fingerprint_object
            case "drop":
                return _drop_text, _drop_object

    def _replace_in_object(self, value: Object) -> Any:
        try:
            return self._replace_matches(value)
        except (RecursionError, ValueError):  # Python writes no integer of more than 4,300 digits
            return None

    def _mask_object(self, value: Object) -> Any:
        try:
            return self._mask(value)
        except RecursionError:
            return None

    def _fingerprint_text(self, text: str) -> str:
        return FINGERPRINT_MARK + self._fingerprinter.fingerprint_text(text)

    def _fingerprint_object(self, value: Object) -> Object:
        """An object by its fingerprint; by the mark alone where it has none."""
        try:
            return {
                FINGERPRINT_MARK: FINGERPRINT_MARK + self._fingerprinter.fingerprint_value(value)
            }
        except (NotJsonError, TypeError):
            return {FINGERPRINT_MARK: FINGERPRINT_MARK}

    def _replace_matches(self, value: Any) -> Any:
        """The value with what patterns find blotted out; itself where they find nothing."""
        if not self._patterns:
            return value
        if isinstance(value, str):
            for blot, replace in self._patterns:
                value = replace(value, blot)
            return value
        if value.__class__ is int or value.__class__ is float:
            digits = str(value)  # as a line would hold them
            told = self._replace_matches(digits)
            return value if told is digits else told
        if isinstance(value, dict):
            told = self._redact_each(value, self._replace_matches)
            same = told.keys() == value.keys() and all(told[k] is value[k] for k in value)
            return value if same else told
        if isinstance(value, (list, tuple)):
            items = [self._replace_matches(item) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else items
        return value

    def _redact_each(self, value: Object, redact: Callable[[Any], Any]) -> Object:
        """An object with its values hidden and its names blotted, each still a name of its own."""
        told: Object = {}
        for name, item in value.items():
            name = self._replace_matches(name)
            if name in told:
                name = f"{name} {len(told) + 1}"
            while name in told:
                name += "'"
            told[name] = redact(item)
        return told

    def _mask(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._redact_each(value, self._mask)
        if isinstance(value, (list, tuple)):
            return [self._mask(item) for item in value]
        if isinstance(value, str):
            return "[string]"
        if isinstance(value, bool):
            return "[bool]"
        return None if value is None else "[number]"


def _drop_text(_: str) -> str:
    return ""


def _drop_object(_: Object) -> None:
    return None


def _mask_text(text: str) -> str:
    lines = text.count("\n") + 1
    return f"[{lines} line{'' if lines == 1 else 's'}, {len(text)} characters]"

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

from policyguard.engines.fingerprint import Fingerprinter, NotJson
from policyguard.model.constraint import Lesson
from policyguard.model.event import Admitted, Completed, Ended, Event, Refused
from policyguard.model.policy import Kept

Redactions = Mapping[type[Event], Callable[[Any], Event]]
"""By kind of event, what gives it as it is to be written: the same object where nothing is to be
hidden. Of kinds that are not there nothing ever is."""

Pattern = tuple[str, Callable[[str, str], str]]
"""A pattern's name, and how to put a text in place of what it finds (`Regex.replace`)."""

Object = dict[str, Any]
Hiders = tuple[Callable[[str], str], Callable[[Object], Object | None]]
"""What is written in place of a text, and of an object, that is not empty."""

MARK = "#"
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
        args: Kept,
        results: Kept,
        patterns: Sequence[Pattern] = (),
        fingerprinter: Fingerprinter,
        whole: bool = False,
    ) -> None:
        self._patterns = tuple((f"[{name}]", replace) for name, replace in patterns)
        self._fingerprinter = fingerprinter
        self._args = args
        self._told = results == "hash" and whole
        self._hide_label, self._hide_args = self._hiders(args)
        self._hide_text, self._hide_meta = self._hiders(results)
        # What may have something to hide: a result does with its lessons, which quote arguments.
        self.by_kind: dict[type[Event], Callable[[Any], Event]] = {}
        if args != "keep" or patterns:
            self.by_kind |= {Admitted: self._attempt, Refused: self._attempt}
            self.by_kind[Completed] = self._result
        if results != "keep" or patterns:
            self.by_kind |= {Completed: self._result, Ended: self._end}

    def _attempt(self, event: Admitted | Refused) -> Event:
        args = event.args
        if args:
            if self._args == "hash":
                args = {MARK: MARK + (event.exact or event.fingerprint)}
            else:
                args = self._hide_args(args)
        targets = self._targets(event.targets) if event.targets else event.targets
        like, numbers = event.like, event.numbers
        if like and (self._args != "keep" or self._blotted(numbers) is not numbers):
            # Tolerant numbers are arguments too. Whoever goes on from this journal takes a call
            # with close numbers for a new one.
            like, numbers = "", ()
        if args is event.args and targets is event.targets and like is event.like:
            return event
        return msgspec.structs.replace(
            event, args=args, targets=targets, like=like, numbers=numbers
        )

    def _targets(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        if self._args == "drop":
            return ()
        if self._args != "keep":
            return tuple(map(self._marked_text, targets))
        told = tuple(map(self._blotted, targets))
        return targets if told == targets else told

    def _result(self, event: Completed) -> Event:
        text = event.text
        if text:
            told = self._told and event.result_fingerprint
            text = MARK + told if told else self._hide_text(text)
        error = self._hide_text(event.error) if event.error else event.error
        meta = self._hide_meta(event.meta) if event.meta else event.meta
        lessons = tuple(map(self._lesson, event.lessons)) if event.lessons else event.lessons
        same = text is event.text and error is event.error and meta is event.meta
        if same and lessons == event.lessons:
            return event
        return msgspec.structs.replace(
            event, text=text, error=error, meta=meta or {}, lessons=lessons
        )

    def _end(self, event: Ended) -> Event:
        text = self._hide_text(event.text) if event.text else event.text
        error = self._hide_text(event.error) if event.error else event.error
        if text is event.text and error is event.error:
            return event
        return msgspec.structs.replace(event, text=text, error=error)

    def _lesson(self, lesson: Lesson) -> Lesson:
        """A lesson is derived, but for what it quotes: of the error, and of the arguments."""
        if not (lesson.error or lesson.label or lesson.point):
            return lesson
        # What was learned is in the store; a replay learns nothing from hidden arguments.
        point = self._kept(lesson.point) if self._args == "keep" else None
        return msgspec.structs.replace(
            lesson,
            error=self._hide_text(lesson.error) if lesson.error else "",
            label=self._hide_label(lesson.label) if lesson.label else "",
            point=point or {},
        )

    def _hiders(self, kept: Kept) -> Hiders:
        match kept:
            case "keep":
                return self._blotted, self._kept
            case "mask":
                return _outline, self._masked
            case "hash":
                return self._marked_text, self._marked
            case "drop":
                return _no_text, _nothing

    def _kept(self, value: Object) -> Any:
        try:
            return self._blotted(value)
        except (RecursionError, ValueError):  # Python writes no integer of more than 4,300 digits
            return None

    def _masked(self, value: Object) -> Any:
        try:
            return self._shape(value)
        except RecursionError:
            return None

    def _marked_text(self, text: str) -> str:
        return MARK + self._fingerprinter.text(text)

    def _marked(self, value: Object) -> Object:
        """An object by its fingerprint; by the mark alone where it has none."""
        try:
            return {MARK: MARK + self._fingerprinter.value(value)}
        except (NotJson, TypeError):
            return {MARK: MARK}

    def _blotted(self, value: Any) -> Any:
        """The value with what patterns find blotted out; itself where they find nothing."""
        if not self._patterns:
            return value
        if isinstance(value, str):
            for blot, replace in self._patterns:
                value = replace(value, blot)
            return value
        if value.__class__ is int or value.__class__ is float:
            digits = str(value)  # as a line would hold them
            told = self._blotted(digits)
            return value if told is digits else told
        if isinstance(value, dict):
            told = self._each(value, self._blotted)
            same = told.keys() == value.keys() and all(told[k] is value[k] for k in value)
            return value if same else told
        if isinstance(value, (list, tuple)):
            items = [self._blotted(item) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else items
        return value

    def _each(self, value: Object, hide: Callable[[Any], Any]) -> Object:
        """An object with its values hidden and its names blotted, each still a name of its own."""
        told: Object = {}
        for name, item in value.items():
            name = self._blotted(name)
            if name in told:
                name = f"{name} {len(told) + 1}"
            while name in told:
                name += "'"
            told[name] = hide(item)
        return told

    def _shape(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._each(value, self._shape)
        if isinstance(value, (list, tuple)):
            return [self._shape(item) for item in value]
        if isinstance(value, str):
            return "[string]"
        if isinstance(value, bool):
            return "[bool]"
        return None if value is None else "[number]"


def _no_text(_: str) -> str:
    return ""


def _nothing(_: Object) -> None:
    return None


def _outline(text: str) -> str:
    lines = text.count("\n") + 1
    return f"[{lines} line{'' if lines == 1 else 's'}, {len(text)} characters]"

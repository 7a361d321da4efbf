"""What is written of a call: `journal.args`, `journal.results` and `journal.redact` of a policy.

Only what a tool or a model said is redacted: arguments, targets, results, errors, metadata. What
policyguard derived from them (class, fingerprints, `keys`, `charges`, signature, blame,
lessons but for the error that they quote) is what state is rebuilt from, and stays; so does what
the host says of itself (names, tags).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from policyguard.model.constraint import Lesson
from policyguard.model.event import Admitted, Completed, Ended, Event, Refused
from policyguard.model.policy import Kept

Redact = Callable[[Event], Event]
"""Gives the event as it is to be written: the same object where nothing is to be hidden."""

Pattern = tuple[str, Callable[[str, str], str]]
"""A pattern's name, and how to put a text in place of what it finds (`Regex.replace`)."""

MARK = "#"
"""Begins a digest; and is the key of the digest of an object."""

_packer = msgspec.msgpack.Encoder(order="deterministic")


class Redaction:
    """A policy's redaction, compiled; a pure function of the event. See `Redact`.

    *keep* blots out what `patterns` find, as `[name]`. *mask* leaves the shape: `[string]`,
    `[3 lines, 70 characters]`. *hash* leaves a digest of exactly what was there, keyed, so that a
    short secret cannot be guessed from it, and whoever has the key and a text can tell whether it
    is the one. *drop* leaves nothing.
    """

    def __init__(
        self, *, args: Kept, results: Kept, patterns: Sequence[Pattern] = (), key: bytes
    ) -> None:
        self._args = args
        self._results = results
        self._patterns = tuple((f"[{name}]", replace) for name, replace in patterns)
        self._hasher = hashlib.blake2b(digest_size=16, key=key[:64], person=b"pg-journal")

    def __call__(self, event: Event) -> Event:
        """The event as it is to be written."""
        if isinstance(event, (Admitted, Refused)):
            return self._attempt(event)
        if isinstance(event, Completed):
            return self._result(event)
        if isinstance(event, Ended):
            return self._end(event)
        return event

    def digest(self, value: object) -> str:
        """The keyed digest of a value, as *hash* leaves it; only the mark where JSON has none."""
        data = _packed(value)
        if data is None:
            return MARK
        hasher = self._hasher.copy()
        hasher.update(data)
        return MARK + hasher.hexdigest()

    def _attempt(self, event: Admitted | Refused) -> Event:
        args: Any = self._hidden(event.args, self._args) if event.args else event.args
        targets: tuple[str, ...] = event.targets
        if targets:
            if self._args == "keep":
                targets = tuple(map(self._blotted, targets))
                targets = event.targets if targets == event.targets else targets
            else:
                targets = () if self._args == "drop" else tuple(map(self.digest, targets))
        like, numbers = event.like, event.numbers
        if like and self._args != "keep":
            # Tolerant numbers are arguments too. Whoever goes on from this journal takes a call
            # with close numbers for a new one.
            like, numbers = "", ()
        if args is event.args and targets is event.targets and like is event.like:
            return event
        return msgspec.structs.replace(
            event, args=args, targets=targets, like=like, numbers=numbers
        )

    def _result(self, event: Completed) -> Event:
        text: Any = self._hidden(event.text, self._results) if event.text else event.text
        error: Any = self._hidden(event.error, self._results) if event.error else event.error
        meta: Any = self._hidden(event.meta, self._results) if event.meta else event.meta
        lessons = tuple(map(self._lesson, event.lessons)) if event.lessons else event.lessons
        same = text is event.text and error is event.error and meta is event.meta
        if same and lessons == event.lessons:
            return event
        return msgspec.structs.replace(
            event, text=text or "", error=error, meta=meta or {}, lessons=lessons
        )

    def _end(self, event: Ended) -> Event:
        text = self._hidden(event.text, self._results) if event.text else event.text
        error = self._hidden(event.error, self._results) if event.error else event.error
        if text is event.text and error is event.error:
            return event
        return msgspec.structs.replace(event, text=text or "", error=error)

    def _lesson(self, lesson: Lesson) -> Lesson:
        """A lesson is derived, but for what it quotes: of the error, and of the arguments."""
        kept = self._args == "keep"
        if not lesson.error and (kept or not (lesson.label or lesson.point)):
            return lesson
        return msgspec.structs.replace(
            lesson,
            error=self._hidden(lesson.error, self._results) if lesson.error else "",
            label=self._hidden(lesson.label, self._args) or "" if lesson.label else "",
            # What was learned is in the store; a replay learns nothing from hidden arguments.
            point=lesson.point if kept else {},
        )

    def _hidden(self, value: Any, kept: Kept) -> Any:
        """A value that is not empty, as it is to be written; None or "" for nothing."""
        try:
            if kept == "keep":
                return self._blotted(value)
            if kept == "mask":
                return _outline(value) if isinstance(value, str) else self._shape(value)
        except RecursionError:
            return None
        if kept == "hash":
            digest = self.digest(value)
            return digest if isinstance(value, str) else {MARK: digest}
        return "" if isinstance(value, str) else None

    def _blotted(self, value: Any) -> Any:
        """The value with what patterns find blotted out; itself where they find nothing."""
        if not self._patterns:
            return value
        if isinstance(value, str):
            for blot, replace in self._patterns:
                value = replace(value, blot)
            return value
        if isinstance(value, dict):
            told = {self._blotted(name): self._blotted(item) for name, item in value.items()}
            same = told.keys() == value.keys() and all(told[k] is value[k] for k in value)
            return value if same else told
        if isinstance(value, (list, tuple)):
            items = [self._blotted(item) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else items
        return value

    def _shape(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._blotted(name): self._shape(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._shape(item) for item in value]
        if isinstance(value, str):
            return "[string]"
        if isinstance(value, bool):
            return "[bool]"
        return None if value is None else "[number]"


def _outline(text: str) -> str:
    lines = text.count("\n") + 1
    return f"[{lines} line{'' if lines == 1 else 's'}, {len(text)} characters]"


def _packed(value: object) -> bytes | None:
    """A value in the one form that equal values have; see `policyguard.engines.fingerprint`."""
    try:
        return b"M" + _packer.encode(value)
    except (OverflowError, UnicodeEncodeError):
        pass  # an integer beyond 64 bits, half of a surrogate pair: ASCII JSON has them
    except (TypeError, RecursionError):
        return None
    try:
        return b"J" + json.dumps(value, sort_keys=True).encode()
    except (TypeError, ValueError, RecursionError):
        return None

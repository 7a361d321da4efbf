"""Redaction of calls in the journal: `journal.args`, `journal.results` and `journal.redact`.

Only the words of tools and models are redacted: arguments, targets, results, errors, metadata. The
rest stays, because state is rebuilt from it: what policyguard derived (class, fingerprints, `keys`,
`charges`, signature, blame, observations except for quotes) and what the host supplied (names,
tags).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from policyguard.engines.fingerprint import Fingerprinter, NotJsonError
from policyguard.model.constraint import Observation
from policyguard.model.event import (
    Admitted,
    Approved,
    CallEnded,
    Completed,
    Denied,
    Event,
    Refused,
)
from policyguard.model.policy import RedactionMode
from policyguard.model.redaction import redact_items, redact_value

Redactions = Mapping[type[Event], Callable[[Any], Event]]
"""Redacts events by type; returns the same object if nothing is redacted. Other types never are."""

NamedPattern = tuple[str, Callable[[str, str], str]]
"""A pattern's name, and a function that replaces its matches in a text (`Regex.replace`)."""

Object = dict[str, Any]
Redactors = tuple[Callable[[str], str], Callable[[Object], Object | None]]
"""Redact a text, and an object, that is not empty."""

FINGERPRINT_MARK = "#"
"""The prefix of a fingerprint, and the key of an object's fingerprint."""


class Redaction:
    """A policy's redaction, compiled to pure functions of events, `by_event_type`.

    *keep* replaces matches of `patterns` by `[name]`. *mask* leaves the shape: `[string]`,
    `[3 lines, 70 characters]`. *hash* leaves keyed fingerprints, from which a short secret cannot
    be guessed: of arguments the call's own, of a text that of exactly this text. *drop* leaves
    nothing. With `fingerprint_is_complete`, a result's fingerprint covers all its text.
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
        self.by_event_type: dict[type[Event], Callable[[Any], Event]] = {}
        if args != "keep" or patterns:
            self.by_event_type |= {Admitted: self._redact_attempt, Refused: self._redact_attempt}
            self.by_event_type[Approved] = self._redact_approval
            self.by_event_type[Denied] = self._redact_denial
            # A result's observations quote arguments.
            self.by_event_type[Completed] = self._redact_result
        if results != "keep" or patterns:
            self.by_event_type |= {Completed: self._redact_result, CallEnded: self._redact_end}

    def _redact_attempt(self, event: Admitted | Refused) -> Event:
        args = event.args
        if args and self._args == "hash":
            fingerprint = event.exact_fingerprint or event.fingerprint
            args = {FINGERPRINT_MARK: FINGERPRINT_MARK + fingerprint}
        elif args:
            args = self._redact_args(args)
        targets = self._redact_targets(event.targets) if event.targets else event.targets
        loose, numbers = event.loose_fingerprint, event.numbers
        if loose and (self._args != "keep" or self._replace_matches(numbers) is not numbers):
            # Tolerant numbers are arguments too. Without them, a state rebuilt from this journal
            # counts a call with close numbers as new.
            loose, numbers = "", ()
        if args is event.args and targets is event.targets and loose is event.loose_fingerprint:
            return event
        return msgspec.structs.replace(
            event, args=args, targets=targets, loose_fingerprint=loose, numbers=numbers
        )

    def _redact_targets(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        if self._args == "drop":
            return ()
        if self._args != "keep":
            return tuple(map(self._fingerprint_text, targets))
        redacted = tuple(map(self._replace_matches, targets))
        return targets if redacted == targets else redacted

    def _redact_approval(self, event: Approved) -> Event:
        """Redact what a grant quotes of arguments; the store has the grant that counts."""
        pattern = self._redact_label(event.pattern) if event.pattern else ""
        same = pattern == event.pattern
        return event if same else msgspec.structs.replace(event, pattern=pattern)

    def _redact_denial(self, event: Denied) -> Event:
        """Redact what a person said; the model has read it as it was."""
        message = self._replace_matches(event.message)
        same = message == event.message
        return event if same else msgspec.structs.replace(event, message=message)

    def _redact_result(self, event: Completed) -> Event:
        text = event.text
        if text:
            fingerprint = self._reuse_fingerprint and event.result_fingerprint
            text = FINGERPRINT_MARK + fingerprint if fingerprint else self._redact_text(text)
        error = self._redact_text(event.error) if event.error else event.error
        meta = self._redact_meta(event.meta) if event.meta else event.meta
        observations = event.observations
        if observations:
            observations = tuple(map(self._redact_observation, observations))
        same = text is event.text and error is event.error and meta is event.meta
        if same and observations == event.observations:
            return event
        return msgspec.structs.replace(
            event, text=text, error=error, meta=meta or {}, observations=observations
        )

    def _redact_end(self, event: CallEnded) -> Event:
        text = self._redact_text(event.text) if event.text else event.text
        error = self._redact_text(event.error) if event.error else event.error
        if text is event.text and error is event.error:
            return event
        return msgspec.structs.replace(event, text=text, error=error)

    def _redact_observation(self, observation: Observation) -> Observation:
        """Redact what an observation quotes of the error and the arguments."""
        if not (observation.error or observation.label or observation.point):
            return observation
        # The store has what was learned; a replay learns nothing from redacted arguments.
        point = self._replace_in_object(observation.point) if self._args == "keep" else None
        return msgspec.structs.replace(
            observation,
            error=self._redact_text(observation.error) if observation.error else "",
            label=self._redact_label(observation.label) if observation.label else "",
            point=point or {},
        )

    def _redactors(self, mode: RedactionMode) -> Redactors:
        match mode:
            case "keep":
                return self._replace_matches, self._replace_in_object
            case "mask":
                return _mask_text, self._mask_object
            case "hash":
                return self._fingerprint_text, self._fingerprint_object
            case "drop":
                return lambda _: "", lambda _: None

    def _replace_in_object(self, value: Object) -> Any:
        try:
            return self._replace_matches(value)
        except (RecursionError, ValueError):  # Python formats no integer beyond 4,300 digits
            return None

    def _mask_object(self, value: Object) -> Any:
        try:
            return self._mask(value)
        except RecursionError:
            return None

    def _fingerprint_text(self, text: str) -> str:
        return FINGERPRINT_MARK + self._fingerprinter.fingerprint_text(text)

    def _fingerprint_object(self, value: Object) -> Object:
        """Return an object's fingerprint; the mark alone if it has none."""
        try:
            fingerprint = self._fingerprinter.fingerprint_value(value)
        except (NotJsonError, TypeError):
            fingerprint = ""
        return {FINGERPRINT_MARK: FINGERPRINT_MARK + fingerprint}

    def _replace_matches(self, value: Any) -> Any:
        """Replace matches of the patterns; return the same object if there are none."""
        return redact_value(value, self._replace_in_text) if self._patterns else value

    def _replace_in_text(self, text: str) -> str:
        for replacement, replace in self._patterns:
            text = replace(text, replacement)
        return text

    def _mask(self, value: Any) -> Any:
        if isinstance(value, dict):
            return redact_items(value, self._replace_in_text, self._mask)
        if isinstance(value, (list, tuple)):
            return [self._mask(item) for item in value]
        if isinstance(value, str):
            return "[string]"
        if isinstance(value, bool):
            return "[bool]"
        return None if value is None else "[number]"


def _mask_text(text: str) -> str:
    lines = text.count("\n") + 1
    return f"[{lines} line{'' if lines == 1 else 's'}, {len(text)} characters]"

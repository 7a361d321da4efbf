"""Redacted journals: placeholders for redacted data, and what cannot be decided without it.

Fingerprints replace arguments and results, so the replay still knows which of them are the same (as
the recording policy saw it). Limits and most budgets work; entries that read arguments do not.
"""

from __future__ import annotations

import re

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.journal.redaction import FINGERPRINT_MARK
from policyguard.model.event import Admitted, Completed, Refused

RESULT_FIELDS = ("text", "error", "chars", "signature", "meta", "changed")
"""Fields of `outcome` that are unknown if results are redacted."""
_REDACTED_TEXT = re.compile(
    rf"(?:{FINGERPRINT_MARK}[0-9a-f]{{24}}|\[\d+ lines?, \d+ characters\]|{FINGERPRINT_MARK})?"
)
"""A redacted text: a fingerprint, its size, or nothing."""
_HEX_TO_LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")
"""Error normalization masks hashes and numbers, but not letters."""


class RedactedResults:
    """How a policy treats results with redacted text."""

    def __init__(self, compiled: CompiledPolicy) -> None:
        policy, outcomes = compiled.policy, compiled.policy.outcomes
        reads = compiled.expressions.all_reads()
        self._reads_text = (
            not reads.isdisjoint(("outcome", *(f"outcome.{name}" for name in RESULT_FIELDS)))
            or any(read.startswith("outcome.meta.") for read in reads)
            or bool(outcomes.envelope)
            or any(signature.on != "error" for signature in policy.signatures)
        )
        self._reads_flags = bool(outcomes.meta.non_advancing or outcomes.meta.harness)
        self._distinguishes_errors = any(compiled.learning) or any(
            limits.no_progress or getattr(limits.failures, "signature", None)
            for limits in policy.limits.values()
        )

    def is_undecidable(self, event: Completed) -> bool:
        """Return whether later decisions depend on the redacted text or flags of a result."""
        if self._reads_text or not event.ok or event.error is not None:
            return self._reads_text or self._distinguishes_errors
        return self._reads_flags and bool(
            event.meta or event.harness_flagged or not event.advancing
        )


def with_placeholder_args(event: Admitted | Refused, index: int) -> Admitted | Refused:
    """Return the call with arguments that are equal for equal fingerprints."""
    placeholder = event.fingerprint or f"the call at {index}"
    return msgspec.structs.replace(event, args={FINGERPRINT_MARK: placeholder})


def with_fingerprints(event: Completed) -> Completed | None:
    """Return the result with fingerprints as its texts, or None if the texts are not redacted.

    Also None if the recording has no fingerprints.
    """
    if not event.result_fingerprint or not _REDACTED_TEXT.fullmatch(event.text):
        return None
    if event.error is not None and not _REDACTED_TEXT.fullmatch(event.error):
        return None
    error = event.error_fingerprint.translate(_HEX_TO_LETTERS) if event.ok is False else None
    return msgspec.structs.replace(event, text=event.result_fingerprint, error=error)

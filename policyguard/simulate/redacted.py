"""Redacted journals: what stands in for what they have not kept, and what that leaves open.

A journal without arguments has the calls' fingerprints, one without results those of the results.
Which calls, and which results, are the same can therefore still be told (as the recording policy
told it), and so limits and most budgets can be asked. What reads the arguments cannot.
"""

from __future__ import annotations

import re

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.journal.redaction import FINGERPRINT_MARK
from policyguard.model.event import Admitted, Completed, Refused

RESULT_FIELDS = ("text", "error", "chars", "signature", "meta", "changed")
"""Fields of `outcome` that are not known where results are not kept."""
_REDACTED_TEXT = re.compile(
    rf"(?:{FINGERPRINT_MARK}[0-9a-f]{{24}}|\[\d+ lines?, \d+ characters\]|{FINGERPRINT_MARK})?"
)
"""What a journal leaves of a text: a fingerprint, an outline, or nothing."""
_HEX_TO_LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")
"""Hashes and numbers are masked where errors are compared; letters are not."""


class RedactedResults:
    """A policy, asked about results whose text was not kept."""

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
        """Whether what follows depends on what such a result said: its text, or beside it."""
        if self._reads_text or not event.ok or event.error is not None:
            return self._reads_text or self._distinguishes_errors
        return self._reads_flags and bool(
            event.meta or event.harness_flagged or not event.advancing
        )


def with_placeholder_args(event: Admitted | Refused, index: int) -> Admitted | Refused:
    """The call with arguments that are the same wherever the fingerprint was."""
    told = event.fingerprint or f"the call at {index}"
    return msgspec.structs.replace(event, args={FINGERPRINT_MARK: told})


def with_fingerprints(event: Completed) -> Completed | None:
    """The result with its fingerprints in place of the texts, where these were not kept.

    None where they were, or where the recording has no fingerprints.
    """
    if not event.result_fingerprint or not _REDACTED_TEXT.fullmatch(event.text):
        return None
    if event.error is not None and not _REDACTED_TEXT.fullmatch(event.error):
        return None
    error = event.error_fingerprint.translate(_HEX_TO_LETTERS) if event.ok is False else None
    return msgspec.structs.replace(event, text=event.result_fingerprint, error=error)

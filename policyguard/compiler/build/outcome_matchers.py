"""When two results, and two errors, are the same; which signature and state they have."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.engines.fingerprint import Fingerprinter
from policyguard.engines.regex import Regex, RegexSet
from policyguard.model import policy
from policyguard.model.policy import Signature

_VARIABLE_PARTS = (
    r"0x[0-9a-fA-F]+",  # addresses
    r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b",  # UUIDs
    r"\b[0-9a-fA-F]{7,64}\b",  # hashes
    r"(?:~|\.{1,2})?/[\w.@%+=:,~/-]+",  # paths
    r"\d+(?:[.:,-]\d+)*",  # numbers, times, versions
)
"""What may differ between two appearances of one error. This is the meaning of "the same error",
not a setting; the order matters, for what comes first is masked first."""


class ErrorNormalizer:
    """Tells errors apart with their accidents masked, over the head of a long text."""

    def __init__(self, fingerprinter: Fingerprinter) -> None:
        self._fingerprinter = fingerprinter
        self._mask = Regex("|".join(_VARIABLE_PARTS))

    def fingerprint(self, error: str) -> str:
        """The fingerprint of an error, its accidents masked."""
        head = (
            error
            if len(error) <= MAX_ERROR_CHARS
            else error[: MAX_ERROR_CHARS // 2] + error[-MAX_ERROR_CHARS // 2 :]
        )
        return self._fingerprinter.fingerprint_text(self.mask(head))

    def mask(self, error: str) -> str:
        """A text with `#` for each of its accidents."""
        return self._mask.replace(error, "#")


MAX_ERROR_CHARS = 2048
"""Characters of an error that tell which error it is (half from the head, half from the tail)."""


def build_result_fingerprint(
    fingerprinter: Fingerprinter, chars: int | None
) -> Callable[[str], str]:
    """Tells results apart by their first `chars` characters, or (None) by all of them."""
    if chars is None:
        return fingerprinter.fingerprint_text
    return lambda text: fingerprinter.fingerprint_text(text[:chars])


class SignatureMatcher:
    """The policy's signatures, first match wins: over failures, and over successes."""

    def __init__(self, signatures: tuple[Signature, ...]) -> None:
        self._on_failure = _SignatureSet([s for s in signatures if s.on in ("error", "any")])
        self._on_success = _SignatureSet([s for s in signatures if s.on in ("success", "any")])

    def match(self, text: str, failed: bool) -> tuple[str, str] | None:
        """The first signature that fits, and its blame."""
        return (self._on_failure if failed else self._on_success).match(text)


class _SignatureSet:
    def __init__(self, signatures: list[Signature]) -> None:
        self._known = [(signature.id, signature.blame) for signature in signatures]
        self._set = None
        if signatures:
            patterns = [signature.pattern for signature in signatures]
            self._set = RegexSet(patterns, head=MAX_SCANNED_CHARS, tail=MAX_SCANNED_CHARS)

    def match(self, text: str) -> tuple[str, str] | None:
        place = self._set.first_match(text) if self._set is not None else None
        return self._known[place] if place is not None else None


class EnvelopeMatcher:
    """The states that results may have, first match wins."""

    def __init__(self, entries: tuple[policy.Envelope, ...]) -> None:
        self._states = [entry.state for entry in entries]
        self._prefixes = [_compile_prefix(entry.pattern) for entry in entries]
        self._set = RegexSet(
            [entry.pattern for entry in entries], head=MAX_SCANNED_CHARS, tail=MAX_SCANNED_CHARS
        )

    def match(self, text: str) -> tuple[str, str] | None:
        """The state of a result, and its text without the mark that it begins with."""
        place = self._set.first_match(text)
        if place is None:
            return None
        state = self._states[place]
        if text.strip().rstrip(":").casefold() in _STATE_WORDS[state]:
            return state, ""
        mark = self._prefixes[place]
        begin, end = (mark.find_span(text[:MAX_SCANNED_CHARS]) if mark is not None else None) or (
            0,
            0,
        )
        if begin or not end or end == min(len(text), MAX_SCANNED_CHARS):
            return state, text  # not what the text begins with, or more than a mark of its state
        if text[end - 1] != ":":  # the colon after a mark is the mark's
            end += text.startswith(":", end)
        return state, text[end:].lstrip()


def _compile_prefix(pattern: str) -> Regex | None:
    """A pattern that says what a text of a state begins with; None: it is found in every text."""
    mark = Regex(pattern)
    return None if mark.search("") or all(map(mark.search, _UNRELATED_TEXTS)) else mark


_UNRELATED_TEXTS = ("a", "!")
"""Texts of a character each: what is found in both stands for any text."""
_STATE_WORDS = {
    "success": ("success", "succeeded"),
    "failure": ("failure", "failed"),
    "pending": ("pending",),
}
"""The words for a state: a result of such a word alone says no more than its state."""
MAX_SCANNED_CHARS = 65536
"""Characters at the head, and at the tail, of a text that signatures are looked for in."""

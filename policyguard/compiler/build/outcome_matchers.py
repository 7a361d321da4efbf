"""Fingerprint results and errors, and match signatures and envelopes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from policyguard.engines.fingerprint import Fingerprinter
from policyguard.engines.regex import GroupRegex, Regex, RegexSet
from policyguard.model import policy
from policyguard.model.policy import Signature

_VARIABLE_PARTS = (
    r"0x[0-9a-fA-F]+",  # addresses
    r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b",  # UUIDs
    r"\b[0-9a-fA-F]{7,64}\b",  # hashes
    r"(?:~|\.{1,2})?/[\w.@%+=:,~/-]+",  # paths
    r"\d+(?:[.:,-]\d+)*",  # numbers, times, versions
)
"""Parts that may vary between occurrences of one error. They define "the same error", so they are
not a setting; earlier patterns mask first."""


class ErrorNormalizer:
    """Fingerprints errors with their variable parts masked; long texts by head and tail."""

    def __init__(self, fingerprinter: Fingerprinter) -> None:
        self._fingerprinter = fingerprinter

    @cached_property
    def _mask(self) -> Regex:
        return Regex("|".join(_VARIABLE_PARTS))

    def fingerprint(self, error: str) -> str:
        """Return the fingerprint of an error, with its variable parts masked."""
        if len(error) > MAX_ERROR_CHARS:
            error = error[: MAX_ERROR_CHARS // 2] + error[-MAX_ERROR_CHARS // 2 :]
        return self._fingerprinter.fingerprint_text(self.mask(error))

    def mask(self, error: str) -> str:
        """Return a text with `#` for each of its variable parts."""
        return self._mask.replace(error, "#")


MAX_ERROR_CHARS = 2048
"""Compared characters of an error: half from the head, half from the tail."""


class ErrorUnwrapper:
    """Takes errors out of the words in which a framework passes them on."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._sources = patterns

    @cached_property
    def _any(self) -> RegexSet:
        return RegexSet(self._sources, head=MAX_SCANNED_CHARS, tail=0)

    @cached_property
    def _patterns(self) -> list[GroupRegex]:
        return [GroupRegex(pattern) for pattern in self._sources]

    def unwrap(self, error: str) -> str:
        """Return the first group of the first pattern that matches; else the error."""
        if len(error) > MAX_SCANNED_CHARS:
            return error
        first = self._any.first_match(error)
        if first is not None:
            for pattern in self._patterns[first:]:
                found = pattern.find(error)
                if found:
                    return found
        return error


def build_result_fingerprint(
    fingerprinter: Fingerprinter, chars: int | None
) -> Callable[[str], str]:
    """Return a fingerprint function for the first `chars` characters of results; None: all."""
    if chars is None:
        return fingerprinter.fingerprint_text
    return lambda text: fingerprinter.fingerprint_text(text[:chars])


class SignatureMatcher:
    """Matches the policy's signatures, on failures or on successes; the first match wins."""

    def __init__(self, signatures: tuple[Signature, ...]) -> None:
        self._on_failure = _SignatureSet([s for s in signatures if s.on in ("error", "any")])
        self._on_success = _SignatureSet([s for s in signatures if s.on in ("success", "any")])

    def match(self, text: str, failed: bool) -> tuple[str, str] | None:
        """Return the id and blame of the first matching signature."""
        return (self._on_failure if failed else self._on_success).match(text)


class _SignatureSet:
    """Signatures that are searched together; the first text compiles them."""

    def __init__(self, signatures: list[Signature]) -> None:
        self._known = [(signature.id, signature.blame) for signature in signatures]
        self._patterns = [signature.pattern for signature in signatures]

    @cached_property
    def _set(self) -> RegexSet:
        return RegexSet(self._patterns, head=MAX_SCANNED_CHARS, tail=MAX_SCANNED_CHARS)

    def match(self, text: str) -> tuple[str, str] | None:
        index = self._set.first_match(text) if self._known else None
        return self._known[index] if index is not None else None


class EnvelopeMatcher:
    """Matches the states of results; the first match wins."""

    def __init__(self, entries: tuple[policy.Envelope, ...]) -> None:
        self._states = [entry.state for entry in entries]
        self._prefixes = [_compile_prefix(entry.pattern) for entry in entries]
        self._set = RegexSet(
            [entry.pattern for entry in entries], head=MAX_SCANNED_CHARS, tail=MAX_SCANNED_CHARS
        )

    def match(self, text: str) -> tuple[str, str] | None:
        """Return the state of a result, and its text without the leading marker."""
        index = self._set.first_match(text)
        if index is None:
            return None
        state = self._states[index]
        if text.strip().rstrip(":").casefold() in _STATE_WORDS[state]:
            return state, ""
        prefix = self._prefixes[index]
        span = prefix.find_span(text[:MAX_SCANNED_CHARS]) if prefix is not None else None
        begin, end = span or (0, 0)
        if begin or not end or end == min(len(text), MAX_SCANNED_CHARS):
            return state, text  # not at the beginning, or the whole text
        if text[end - 1] != ":":  # a colon after the marker belongs to it
            end += text.startswith(":", end)
        return state, text[end:].lstrip()


def _compile_prefix(pattern: str) -> Regex | None:
    """Compile a pattern for markers; None if it matches any text."""
    regex = Regex(pattern)
    return None if regex.search("") or all(map(regex.search, _UNRELATED_TEXTS)) else regex


_UNRELATED_TEXTS = ("a", "!")
"""A pattern that matches both texts matches any text."""
_STATE_WORDS = {
    "success": ("success", "succeeded"),
    "failure": ("failure", "failed"),
    "pending": ("pending",),
}
"""Words for a state; a result of such a word alone contains nothing else."""
MAX_SCANNED_CHARS = 65536
"""Characters searched at the head, and at the tail, of a text."""

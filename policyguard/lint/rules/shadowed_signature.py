"""A signature that an earlier one leaves little or nothing to find.

Signatures are read first-match: an error has the first one whose pattern is found in it, with its
blame and what it teaches. One that comes later and is narrower is never told, or not for the texts
that its own examples show.

That is only said where it can be shown: with an example of the signature itself, or where each
match of its pattern has a text in it that an earlier pattern finds wherever it stands.

Avoid:

    signatures:
      - {id: failed, pattern: 'error', blame: agent}
      - {id: disk_full, pattern: 'error: no space left', blame: harness}

Prefer the narrower one first:

    signatures:
      - {id: disk_full, pattern: 'error: no space left', blame: harness}
      - {id: failed, pattern: 'error', blame: agent}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from policyguard.engines.regex import RegexSet
from policyguard.lint.analysis.patterns import compile_regex
from policyguard.lint.analysis.required_literals import RequiredLiteral, required_literals
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.diagnostic import quote_text
from policyguard.model.policy import Signature

_EDGES = ("", "\n", "\x01", "_")
"""What stands at the edge of a text, one for each kind that an assertion can tell: nothing, a line
break, what is in no word, what is in one."""


def check(subject: LintContext) -> Iterator[Finding]:
    """Signatures that are never told, and examples that are told as something else."""
    signatures = subject.policy.signatures
    if not any(subject.owns(("signatures", place)) for place in range(len(signatures))):
        return
    readers = {on: _Readers(signatures, on) for on in ("error", "success", "any")}
    for place, signature in enumerate(signatures):
        first = readers[signature.on]
        proof = _proof(signature, place, first)
        if proof is not None:
            yield _never(subject, place, *proof)
            continue
        for number, example in enumerate(signature.examples.match):
            taker = first.before(place, example)
            if taker is not None:
                name = signatures[taker].id
                path = ("signatures", place, "examples", "match", number)
                message = f"this example of `{signature.id}` is told as `{name}`"
                hint = f"put `{signature.id}` before `{name}`, or make that one narrower"
                yield Finding(subject.merged.span_of(path), message, hint)


class _Readers:
    """The signatures that are tried on all results that one with this `on` is tried on."""

    def __init__(self, signatures: tuple[Signature, ...], on: str) -> None:
        self._places = [
            place for place, signature in enumerate(signatures) if signature.on in ("any", on)
        ]
        self._signatures = signatures
        patterns = [signatures[place].pattern for place in self._places]
        self._set = RegexSet(patterns) if patterns else None

    def before(self, place: int, text: str) -> int | None:
        """The place of the first that finds something in `text`, if it stands before `place`."""
        first = self._set.first_match(text) if self._set is not None else None
        return self._places[first] if first is not None and self._places[first] < place else None

    def anywhere(self, place: int, text: RequiredLiteral) -> set[int] | None:
        """Those before `place` of which one finds `text` whatever stands around it; else None.

        What they find must lie in the text itself: then only the characters at its edges matter.
        """
        takers = set()
        for before, behind in product(_EDGES, _EDGES):
            taker = self.before(place, before + text.text + behind)
            if taker is None:
                return None
            pattern = self._signatures[taker].pattern
            start, end = compile_regex(pattern).find_span(before + text.text + behind) or (-1, -1)
            if start < len(before) or end > len(before) + len(text.text):
                return None
            if text.ignore_case and not _folds(pattern):
                return None
            takers.add(taker)
        return takers


def _proof(
    signature: Signature, place: int, first: _Readers
) -> tuple[RequiredLiteral, list[int]] | None:
    """A text that the pattern needs, and the places of those that find all such texts."""
    texts = required_literals(signature.pattern)
    takers: set[int] = set()
    for text in texts:
        found = first.anywhere(place, text)
        if found is None:
            return None
        takers |= found
    if not texts:
        return None
    return min(texts, key=lambda text: (len(text.text), text.text)), sorted(takers)


def _never(
    subject: LintContext, place: int, witness: RequiredLiteral, takers: list[int]
) -> Finding:
    """The report at the signature; if it is inherited, at the first of the own that take it."""
    layered, signatures = subject.merged, subject.policy.signatures
    id_ = signatures[place].id
    names = " and ".join(f"`{signatures[taker].id}`" for taker in takers)
    verb = "finds" if len(takers) == 1 else "find"
    shown = quote_text(witness.text)
    if subject.owns(("signatures", place)):
        message = f"no result is ever told as `{id_}`: {names} {verb} it first, as in {shown}"
        hint = f"put `{id_}` first, or take it out"
        return Finding(layered.span_of(("signatures", place, "id")), message, hint)
    own = [taker for taker in takers if subject.owns(("signatures", taker))]
    message = f"{names} {verb} all that the inherited `{id_}` would, such as {shown}"
    hint = f"give it the id `{id_}` if it is to replace it"
    return Finding(layered.span_of(("signatures", (own or [place])[0], "id")), message, hint)


def _folds(pattern: str) -> bool:
    """Whether the whole pattern is read without regard to case."""
    return bool(re.match(r"\(\?[msU]*i[imsU]*\)", pattern)) and not re.search(r"\(\?\w*-", pattern)

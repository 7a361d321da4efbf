"""A signature that an earlier signature leaves little or nothing to match.

A result gets the first signature whose pattern matches, with its blame and what it teaches. A
later, narrower signature never matches, or not for its own examples.

This is reported only if it can be shown: by an example of the signature itself, or because every
match of its pattern contains a text that an earlier pattern always matches.

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
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text
from policyguard.model.policy import Signature

_NEIGHBOURS = ("", "\n", "\x01", "_")
"""One neighbour of each kind an assertion distinguishes: none, a line break, a non-word character
and a word character."""


def check(context: LintContext) -> Iterator[Finding]:
    """Report signatures that can never match, and examples that another signature matches."""
    signatures = context.policy.signatures
    if not any(context.owns(("signatures", index)) for index in range(len(signatures))):
        return
    first_matches = {on: _FirstMatch(signatures, on) for on in ("error", "success", "any")}
    for index, signature in enumerate(signatures):
        first = first_matches[signature.on]
        proof = _find_proof(signature, index, first)
        if proof is not None:
            yield _shadowed(context, index, *proof)
            continue
        if not context.owns(("signatures", index)):
            yield from _check_inherited(context, index, first)
            continue
        for number, example in enumerate(signature.examples.match):
            matcher = first.before(index, example)
            if matcher is not None:
                name = signatures[matcher].id
                path = ("signatures", index, "examples", "match", number)
                message = f"this example of `{signature.id}` is classified as `{name}`"
                hint = f"move `{signature.id}` before `{name}`, or make `{name}` narrower"
                yield Finding(context.merged.span_of(path), message, hint)


class _FirstMatch:
    """The signatures tried on every result that a signature with this `on` is tried on."""

    def __init__(self, signatures: tuple[Signature, ...], on: str) -> None:
        self._indexes = [
            index for index, signature in enumerate(signatures) if signature.on in ("any", on)
        ]
        self._signatures = signatures
        patterns = [signatures[index].pattern for index in self._indexes]
        self._set = RegexSet(patterns) if patterns else None

    def before(self, index: int, text: str) -> int | None:
        """Return the index of the first signature that matches `text`, if before `index`."""
        first = self._set.first_match(text) if self._set is not None else None
        return self._indexes[first] if first is not None and self._indexes[first] < index else None

    def matching_anywhere(self, index: int, text: RequiredLiteral) -> set[int] | None:
        """Return the signatures before `index` that match `text` in any surroundings, or None.

        Their matches must lie within the text, so that only its neighbouring characters matter.
        """
        matchers = set()
        for before, after in product(_NEIGHBOURS, _NEIGHBOURS):
            matcher = self.before(index, before + text.text + after)
            if matcher is None:
                return None
            pattern = self._signatures[matcher].pattern
            start, end = compile_regex(pattern).find_span(before + text.text + after) or (-1, -1)
            if start < len(before) or end > len(before) + len(text.text):
                return None
            if text.ignore_case and not _ignores_case(pattern):
                return None
            matchers.add(matcher)
        return matchers


def _find_proof(
    signature: Signature, index: int, first: _FirstMatch
) -> tuple[RequiredLiteral, list[int]] | None:
    """Return a text the pattern requires and the signatures that match all such texts."""
    literals = required_literals(signature.pattern)
    matchers: set[int] = set()
    for literal in literals:
        found = first.matching_anywhere(index, literal)
        if found is None:
            return None
        matchers |= found
    if not literals:
        return None
    shortest = min(literals, key=lambda literal: (len(literal.text), literal.text))
    return shortest, sorted(matchers)


def _check_inherited(context: LintContext, index: int, first: _FirstMatch) -> Iterator[Finding]:
    """Report an own signature that takes all examples of an inherited one and blames another."""
    signatures = context.policy.signatures
    inherited = signatures[index]
    matchers = [first.before(index, example) for example in inherited.examples.match]
    own = [one for one in matchers if one is not None and context.owns(("signatures", one))]
    if own and len(own) == len(matchers) and signatures[own[0]].blame != inherited.blame:
        message = (
            f"`{signatures[own[0]].id}` matches all examples of the inherited `{inherited.id}`, "
            f"which blames `{inherited.blame}`"
        )
        hint = f"make it narrower, or use the id `{inherited.id}` to replace it"
        yield Finding(context.merged.span_of(("signatures", own[0], "id")), message, hint)


def _shadowed(
    context: LintContext, index: int, witness: RequiredLiteral, matchers: list[int]
) -> Finding:
    """Report at the signature or, if it is inherited, at the first own one that shadows it."""
    merged, signatures = context.merged, context.policy.signatures
    id_ = signatures[index].id
    names = " and ".join(f"`{signatures[matcher].id}`" for matcher in matchers)
    verb = "matches" if len(matchers) == 1 else "match"
    shown = quote_text(witness.text)
    if context.owns(("signatures", index)):
        message = f"signature `{id_}` can never match: {names} {verb} first, as in {shown}"
        hint = f"move `{id_}` first, or remove it"
        return Finding(merged.span_of(("signatures", index, "id")), message, hint)
    own = [matcher for matcher in matchers if context.owns(("signatures", matcher))]
    message = f"{names} {verb} everything the inherited `{id_}` would, such as {shown}"
    hint = f"use the id `{id_}` to replace it"
    return Finding(merged.span_of(("signatures", (own or [index])[0], "id")), message, hint)


def _ignores_case(pattern: str) -> bool:
    """Return whether the whole pattern ignores case."""
    return bool(re.match(r"\(\?[msU]*i[imsU]*\)", pattern)) and not re.search(r"\(\?\w*-", pattern)

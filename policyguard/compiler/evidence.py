"""A policy's patterns: they compile, and they find what their own examples say."""

from __future__ import annotations

import re
from collections.abc import Iterator

from policyguard.compiler.layers import Layered
from policyguard.engines.regex import Regex, RegexError
from policyguard.engines.yaml_tree import Path, Scalar
from policyguard.model.diagnostic import Diagnostic, Span
from policyguard.model.entry import TextExamples
from policyguard.model.policy import Policy

_QUOTED = re.compile(r": (.+)\Z", re.DOTALL)
_NOTHING = TextExamples()


def check_patterns(policy: Policy, layered: Layered) -> Iterator[Diagnostic]:
    """Compile every pattern and try it on its examples."""
    for name, pattern in policy.patterns.items():
        path: Path = ("patterns", name)
        inner = (*path, "match") if layered.has((*path, "match")) else path
        yield from _check(pattern.match, inner, pattern.examples, (*path, "examples"), layered)
    for place, signature in enumerate(policy.signatures):
        path = ("signatures", place)
        yield from _check(
            signature.pattern,
            (*path, "pattern"),
            signature.examples,
            (*path, "examples"),
            layered,
        )
    for place, envelope in enumerate(policy.outcomes.envelope):
        path = ("outcomes", "envelope", place, "pattern")
        yield from _check(envelope.pattern, path, _NOTHING, (), layered)


def _check(
    pattern: str, path: Path, examples: TextExamples, around: Path, layered: Layered
) -> Iterator[Diagnostic]:
    try:
        regex = Regex(pattern)
    except RegexError as error:
        message = f"RE2 does not accept this pattern: {error.reason}"
        yield layered.diagnostic("regex/syntax", message, _culprit(error, path, layered))
        return
    for wanted, texts in (("match", examples.match), ("no_match", examples.no_match)):
        for place, text in enumerate(texts):
            if regex.search(text) is not (wanted == "match"):
                verb = "does not find" if wanted == "match" else "finds"
                message = f"the pattern {verb} anything in this example"
                if wanted == "no_match":
                    message = "the pattern finds something in this example"
                span = layered.where((*around, wanted, place))
                yield layered.diagnostic("regex/example", message, span)


def _culprit(error: RegexError, path: Path, layered: Layered) -> Span:
    """The part of the pattern that RE2 names, where it stands there only once."""
    node = layered.node(path)
    quoted = _QUOTED.search(error.reason)
    if not isinstance(node, Scalar):
        return layered.where(path)
    if quoted and node.text.count(quoted[1]) == 1:
        start = node.text.index(quoted[1])
        return node.stretch(start, start + len(quoted[1]))
    return node.stretch(0, len(node.text))

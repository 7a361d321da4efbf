"""Compile a policy's patterns and test them on their examples."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.regex import Regex, RegexError
from policyguard.engines.yaml_tree import Path, ScalarNode
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.entry import TextExamples
from policyguard.model.policy import Policy

_NO_EXAMPLES = TextExamples()


def check_patterns(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Compile every pattern and test it on its examples."""
    for name, pattern in policy.patterns.items():
        path: Path = ("patterns", name)
        inner = (*path, "match") if merged.has((*path, "match")) else path
        yield from _check_pattern(
            pattern.match, inner, pattern.examples, (*path, "examples"), merged
        )
    for index, signature in enumerate(policy.signatures):
        path = ("signatures", index)
        yield from _check_pattern(
            signature.pattern, (*path, "pattern"), signature.examples, (*path, "examples"), merged
        )
    for index, envelope in enumerate(policy.outcomes.envelope):
        path = ("outcomes", "envelope", index, "pattern")
        yield from _check_pattern(envelope.pattern, path, _NO_EXAMPLES, (), merged)
    for index, wrapper in enumerate(policy.outcomes.wrappers):
        wrapper_path: Path = ("outcomes", "wrappers", index)
        yield from _check_pattern(wrapper, wrapper_path, _NO_EXAMPLES, (), merged)
    if policy.classify.shell.computed_code:
        code_path: Path = ("classify", "shell", "computed_code")
        code = policy.classify.shell.computed_code
        yield from _check_pattern(code, code_path, _NO_EXAMPLES, (), merged)
    for name, program in policy.classify.shell.programs.items():
        for key, text in (("script", program.script), ("runs", program.runs)):
            if text:
                program_path: Path = ("classify", "shell", "programs", name, key)
                yield from _check_pattern(text, program_path, _NO_EXAMPLES, (), merged)


def _check_pattern(
    pattern: str, path: Path, examples: TextExamples, examples_path: Path, merged: MergedPolicy
) -> Iterator[Diagnostic]:
    try:
        regex = Regex(pattern)
    except RegexError as error:
        yield _syntax_error(error, path, merged)
        return
    for expected, texts in (("match", examples.match), ("no_match", examples.no_match)):
        for index, text in enumerate(texts):
            if regex.search(text) is not (expected == "match"):
                verb = "does not match" if expected == "match" else "matches"
                message = f"the pattern {verb} this example"
                yield merged.diagnostic("regex/example", message, (*examples_path, expected, index))


def _syntax_error(error: RegexError, path: Path, merged: MergedPolicy) -> Diagnostic:
    """Report an RE2 error, at the part it names if that occurs once."""
    reason, _, culprit = error.reason.partition(": ")
    message = f"RE2 does not accept this pattern: {reason}"
    node = merged.node(path)
    span = merged.span_of(path)
    if isinstance(node, ScalarNode):
        span = node.subspan(0, len(node.text))
        if culprit and culprit != node.text and node.text.count(culprit) == 1:
            start = node.text.index(culprit)
            span = node.subspan(start, start + len(culprit))
            message += f": `{culprit}`"
    return merged.diagnostic("regex/syntax", message, span, hint=error.help)

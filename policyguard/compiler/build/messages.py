"""Parse messages and their `{placeholders}`, and redact the values that fill them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from policyguard.compiler.build.entry_paths import call_entries
from policyguard.compiler.build.selectors.selector import compile_glob
from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.engines.regex import Regex
from policyguard.evaluator.messages import MessageTemplate
from policyguard.model.policy import Policy

_TOKEN = lazy_pattern(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Placeholder(msgspec.Struct, frozen=True):
    """A placeholder: its dotted name, and its offsets in the message."""

    name: str
    start: int
    end: int


class ParsedMessage(msgspec.Struct, frozen=True):
    """A parsed message: texts and placeholder names alternate, starting with a text.

    `stray_braces` are the offsets of unmatched braces.
    """

    parts: tuple[str, ...]
    placeholders: tuple[Placeholder, ...]
    stray_braces: tuple[int, ...]


def parse_message(text: str) -> ParsedMessage:
    """Parse a message; `{{` and `}}` are literal braces."""
    parts, placeholders, stray = [""], [], []
    position = 0
    for token in _TOKEN.finditer(text):
        parts[-1] += text[position : token.start()]
        position = token.end()
        if token[1] is not None:
            name = token[1].strip()
            placeholders.append(Placeholder(name, *token.span()))
            parts += [name, ""]
        elif len(token[0]) == 2:
            parts[-1] += token[0][0]
        else:
            parts[-1] += token[0]
            stray.append(token.start())
    parts[-1] += text[position:]
    return ParsedMessage(tuple(parts), tuple(placeholders), tuple(stray))


def collect_message_fields(policy: Policy) -> frozenset[str]:
    """Return the dotted names of all placeholders in messages."""
    texts = [text for _, entry in call_entries(policy) for text in (entry.message, entry.instead)]
    texts += [rule.message for rule in policy.result_rules]
    return frozenset(
        placeholder.name
        for text in texts
        if text is not None
        for placeholder in parse_message(text).placeholders
    )


def build_message(text: str | None, redact: Callable[[str], str]) -> MessageTemplate | None:
    """Parse a message into a template; None if there is none."""
    return MessageTemplate(parse_message(text).parts, redact) if text is not None else None


def redact_patterns(policy: Policy) -> list[tuple[str, Callable[[str, str], str]]]:
    """Return the names of the patterns, each with its replace function."""
    globs = [compile_glob(item) for item in policy.journal.redact]
    return [
        (name, Regex(pattern.match).replace)
        for name, pattern in policy.patterns.items()
        if any(matches(name) for matches in globs)
    ]


def build_redactor(policy: Policy) -> Callable[[str], str]:
    """Return a function that replaces the patterns' matches in a text with `[name]`."""
    found = [(f"[{name}]", replace) for name, replace in redact_patterns(policy)]

    def redact(text: str) -> str:
        for label, replace in found:
            text = replace(text, label)
        return text

    return redact

"""A regex where exact text is compared, or a pattern with the slashes of other languages.

`startsWith`, `endsWith` and `contains` compare text as it stands: no text that a tool gets begins
with `^`. A pattern has no `/` around it and no flags behind it; they would be searched for, too.

Avoid:

    no-drop: {tools: [run], when: "call.args.text.startsWith('^drop')"}
    no-keys: {tools: [run], when: "call.args.text.matches('/secret/i')"}

Prefer:

    no-drop: {tools: [run], when: "call.args.text.startsWith('drop')"}
    no-keys: {tools: [run], when: "call.args.text.matches('(?i)secret')"}
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policyguard.cel.syntax.ast import Call, Constant, iter_tree
from policyguard.lint.analysis.patterns import find_patterns
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text

_REGEX_SIGNS = {
    "startsWith": re.compile(r"^\^."),
    "endsWith": re.compile(r".\$$"),
    "contains": re.compile(r"^\.[*+]|\.[*+]\w"),
}
"""What a text has that is written as a regex, by the function that looks for it."""
_SLASHES = re.compile(r"/([^/]+)/(g?i|ig|im|mi)")


def check(context: LintContext) -> Iterator[Finding]:
    """Report regexes in functions that compare text, and patterns between slashes with flags."""
    for path, tree in context.cel_trees.items():
        for node in iter_tree(tree):
            match node:
                case Call(name=name, arguments=[Constant(raw_value=str(text))]):
                    signs = _REGEX_SIGNS.get(name)
                    if signs is not None and signs.search(text):
                        message = f"`{name}` compares exact text, but {quote_text(text)} is a regex"
                        help_text = "write the text alone, or use `matches`"
                        yield Finding(context.subspan(path, node.span), message, help_text)
    for pattern in find_patterns(context):
        found = _SLASHES.fullmatch(pattern.text)
        if found is not None and not pattern.examples.match:
            message = f"{quote_text(pattern.text)} looks for its slashes and flags, too"
            plain = f"(?{found[2].replace('g', '')}){found[1]}"
            span = pattern.subspan(0, len(pattern.text))
            yield Finding(span, message, f"write {quote_text(plain)}")

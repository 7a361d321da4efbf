"""A command pattern that does not even match its own words, run as a command.

A pattern is compared with the words that a program gets. What the shell takes for itself is gone by
then: variables are replaced by their values, comments and assignments are no words, a `2>` is a
redirection. So a pattern with such parts matches nothing, and its rule refuses nothing.

Avoid:

    no-home: {commands: [rm -r $HOME]}

Prefer:

    no-home: {commands: [rm -r], paths: ['~', '~/**']}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.cel.syntax.ast import Call, Constant, ListLiteral, iter_tree
from policyguard.compiler.check.content_selectors import iter_content_selectors
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import Span, quote_text

_FUNCTIONS = ("runs", "only_runs", "paths")


def check(context: LintContext) -> Iterator[Finding]:
    """Report patterns in selectors and expressions that no form of their own text matches."""
    shell = context.expressions.shell
    for span, pattern in _iter_patterns(context):
        if shell.compile_patterns((pattern,)).find(_example(pattern)) is None:
            message = f"{quote_text(pattern)} matches no command, not even its own words"
            yield Finding(span, message, _hint(pattern))


def _iter_patterns(context: LintContext) -> Iterator[tuple[Span, str]]:
    for path, key, selector in iter_content_selectors(context.policy):
        inner = (*path, key, "outside") if selector.outside else (*path, key)
        if key == "commands" and context.owns(inner):
            for index, pattern in enumerate(selector.items):
                yield context.merged.span_of((*inner, index)), pattern
    for path, tree in context.cel_trees.items():
        if not context.owns(path):
            continue
        for node in iter_tree(tree):
            if not isinstance(node, Call) or node.name not in _FUNCTIONS:
                continue
            for argument in node.arguments:
                items = argument.items if isinstance(argument, ListLiteral) else (argument,)
                for item in items:
                    if isinstance(item, Constant) and isinstance(item.value, str):
                        yield context.subspan(path, item.span), item.value


def _example(pattern: str) -> str:
    """Return a command that a pattern should match: the first of alternatives, `x` for `*`."""
    words = []
    for part in pattern.split():
        if part.startswith("!") or part == "**":
            continue
        first = part if part == "|" else part.split("|")[0]
        words.append(first.replace("**", "x").replace("*", "x").replace("?", "x"))
    return " ".join(words)


def _hint(pattern: str) -> str:
    if "$" in pattern:
        return "a shell replaces variables: write `*` for any word, or name the place in `paths`"
    if "=" in pattern.split()[0]:
        return "what a command assigns first is no word of it: write the program first"
    if "#" in pattern:
        return "what follows a `#` is a comment to a shell: leave it out"
    return "write the program, then words and options as it gets them; `> path` for a file"

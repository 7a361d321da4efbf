"""A rule that compares a path, URL, mail address or SQL statement as text.

`/etc/passwd` is also `//etc/passwd` and `/tmp/../etc/passwd`; `https://a.example` is also the
beginning of `https://a.example.evil.example`; `x@evil.example, y@a.example` ends in `@a.example`;
`SELECT 1; DELETE …` begins with `SELECT`. As a condition, such a comparison misses other
spellings; as an exemption, it exempts more than it says.

Avoid:

    no-etc: {when: "call.targets.exists(t, t.startsWith('/etc/'))"}
    own-site: {tools: [open_url], unless: "call.args.url.startsWith('https://a.example')"}
    own-mail: {tools: [send], unless: "call.args.to.endsWith('@a.example')"}

Prefer functions that read what they compare; what they cannot read counts against the call:

    no-etc: {when: "call.targets.exists(t, t.inside('/etc'))"}
    own-site: {tools: [open_url], unless: "call.args.url.host_in(['a.example'])"}
    own-mail: {tools: [send], unless: "call.args.to.email_domain() == 'a.example'"}

No function reads SQL yet: give the tool a database role that may only do what the rule allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policyguard.cel.syntax.ast import Binary, Call, Constant, Expr, ListLiteral, iter_children
from policyguard.lint.analysis.satisfiability import TEXT_FUNCTIONS, value_name
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect

_FIELDS = ("call.tool", "call.server", "call.agent", "call.class", "call.command", "session.")
"""Texts other than addresses; commands have a rule of their own."""
_URL = re.compile(r"^\^?(?:https?|ftp|wss?):|://")
_MAIL = re.compile(r"^\^?@\w|\w@\w")
_PATH = re.compile(r"^\^?(?:/(?![/*?(])|~/|\.\.?/)[\w.\\]")
_SQL = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE|DROP|ALTER|TRUNCATE|GRANT)\b")
_KINDS = (
    (_URL, "a URL", "use `url.host_in([…])`"),
    (_MAIL, "a mail address", "use `address.email_domain()`"),
    (_PATH, "a path", "use `path.inside('/root')` or `path.like('**/name')`"),
    (_SQL, "SQL", "no function reads SQL yet; give the tool a role that may do no more"),
)


def check(context: LintContext) -> Iterator[Finding]:
    """Report comparisons of structured text in the conditions of refusing rules."""
    for rule in context.policy.rules:
        for key in ("when", "unless"):
            path = ("rules", rule.id, key)
            tree = context.cel_trees.get(path)
            if tree is None or rule.effect < Effect.ASK:
                continue
            for node, kind, hint in _comparisons(tree, is_exemption=key == "unless"):
                consequence = (
                    "exempts more than it says"
                    if key == "unless"
                    else "can be written in other ways"
                )
                message = f"this compares {kind} as text, which {consequence}"
                yield Finding(context.subspan(path, node.span), message, hint)
                break


def _comparisons(node: Expr, *, is_exemption: bool) -> Iterator[tuple[Expr, str, str]]:
    """Yield comparisons with structured text, what it is, and what to write instead.

    An exemption of one exact text is exact.
    """
    match node:
        case Call(name=name, receiver=receiver, arguments=[Constant(raw_value=str(text))]):
            if name in TEXT_FUNCTIONS and _is_free_text(receiver):
                yield from _explain(node, text)
        case Binary(operator="==" | "in", left=left, right=right) if not is_exemption:
            items = right.items if isinstance(right, ListLiteral) else (right,)
            for item in items if _is_free_text(left) else ():
                if isinstance(item, Constant) and isinstance(item.raw_value, str):
                    yield from _explain(node, item.raw_value)
    for child in iter_children(node):
        yield from _comparisons(child, is_exemption=is_exemption)


def _explain(node: Expr, text: str) -> Iterator[tuple[Expr, str, str]]:
    for pattern, kind, hint in _KINDS:
        if pattern.search(text):
            yield node, kind, hint
            return


def _is_free_text(node: Expr | None) -> bool:
    return node is not None and not value_name(node).startswith(_FIELDS)

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
    only-read: {tools: [sql], unless: "call.args.sql.sql().all(s, s.verb == 'SELECT')"}
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policyguard.cel.syntax.ast import Binary, Call, Constant, Expr, ListLiteral, iter_children
from policyguard.compiler.build.entry_paths import rule_parts
from policyguard.lint.analysis.satisfiability import TEXT_FUNCTIONS, value_name
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect

_FIELDS = ("call.tool", "call.server", "call.agent", "call.class", "call.command", "session.")
"""Texts other than addresses; commands have a rule of their own."""
_URL = re.compile(r"^\^?(?:https?|ftp|wss?):|://")
_MAIL = re.compile(r"^\^?@\w|\w@\w")
_PATH = re.compile(r"^\^?(?:/(?![/*?(])|~/|\.\.?/)[\w.\\]")
_SQL_WORDS = r"(?:SELECT|INSERT|UPDATE|DELETE|DROP|ALTER|TRUNCATE|GRANT)"
_SQL = re.compile(rf"\b{_SQL_WORDS}\b|(?i:\b(?:DROP|ALTER|TRUNCATE) +TABLE\b|\bDELETE +FROM\b)")
_AS_URL = ("a URL", "use `url.host_in([…])`")
_AS_MAIL = ("a mail address", "use `address.email_domain()`")
_AS_PATH = ("a path", "use `path.inside('/root')` or `path.like('**/name')`")
_AS_SQL = ("SQL", "use `query.sql().exists(s, s.verb == 'DELETE' && !s.where)`")
_KINDS = ((_URL, _AS_URL), (_MAIL, _AS_MAIL), (_PATH, _AS_PATH), (_SQL, _AS_SQL))
_NAMED_KINDS = (
    (re.compile(r"(?:^|_)(?:url|uri|href)$"), re.compile(r"[.:]"), _AS_URL),
    (re.compile(r"(?:^|_)(?:path|file|filename|dir|directory)$"), re.compile(r"[./]"), _AS_PATH),
    (re.compile(r"(?:^|_)sql$"), re.compile(rf"\b{_SQL_WORDS}\b", re.IGNORECASE), _AS_SQL),
)
"""Names of arguments, and what a text that is looked for in them must have."""
_REGEX_SYNTAX = re.compile(r"\(\?[a-zA-Z]+\)|\\[bBAzs][*+]?")
"""What may stand between the words of a regex: each is as good as a blank."""


def check(context: LintContext) -> Iterator[Finding]:
    """Report comparisons of structured text in the conditions of refusing rules."""
    for own, rule in rule_parts(context.policy):
        for key in ("when", "unless"):
            path = (*own, key)
            tree = context.cel_trees.get(path)
            is_allowed = rule.effect is Effect.ALLOW  # by a case
            if tree is None or (rule.effect < Effect.ASK and not is_allowed):
                continue
            is_exemption = (key == "unless") is not is_allowed
            for node, kind, hint in _comparisons(tree, is_exemption=is_exemption):
                consequence = (
                    "exempts more than it says" if is_exemption else "can be written in other ways"
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
            if name in TEXT_FUNCTIONS and receiver is not None and _is_free_text(receiver):
                if name == "matches":
                    text = _REGEX_SYNTAX.sub(" ", text)
                yield from _explain(node, text, _argument_name(receiver))
        case Binary(operator="==" | "in", left=left, right=right) if not is_exemption:
            items = right.items if isinstance(right, ListLiteral) else (right,)
            for item in items if _is_free_text(left) else ():
                if isinstance(item, Constant) and isinstance(item.raw_value, str):
                    yield from _explain(node, item.raw_value)
    for child in iter_children(node):
        yield from _comparisons(child, is_exemption=is_exemption)


def _explain(node: Expr, text: str, argument: str = "") -> Iterator[tuple[Expr, str, str]]:
    found = [kind for pattern, kind in _KINDS if pattern.search(text.strip())]
    found += [
        kind
        for name, pattern, kind in _NAMED_KINDS
        if name.search(argument) and pattern.search(text)
    ]
    for kind, hint in found[:1]:
        yield node, kind, hint


def _is_free_text(node: Expr) -> bool:
    is_verb = _argument_name(node) == "verb"  # of a statement that `sql()` has read
    return not (is_verb or value_name(node).startswith(_FIELDS))


def _argument_name(node: Expr) -> str:
    """Return the last name of a value, such as an argument's, also in lower case."""
    if isinstance(node, Call) and node.receiver is not None and not node.arguments:
        node = node.receiver
    return value_name(node).rpartition(".")[2]

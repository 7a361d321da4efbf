"""Literals beside a value that is one of few texts, or has no capital letters."""

from __future__ import annotations

from policyguard.cel.check.problems import Problems, suggest_name
from policyguard.cel.syntax.ast import Constant, Expr
from policyguard.cel.types.types import EnumType, LowerCaseType, Type


def check_member(problems: Problems, vocabulary: Type, node: Expr) -> None:
    """Report a literal that the values it is compared with never are."""
    name = node.value if isinstance(node, Constant) else None
    if not isinstance(name, str):
        return
    if isinstance(vocabulary, LowerCaseType) and name != name.lower():
        message = f"{vocabulary.names} have no capital letters here, so this is never `{name}`"
        problems.report("never-equal", message, node.span, f"write `{name.lower()}`", "warning")
    if isinstance(vocabulary, EnumType) and name not in vocabulary.members:
        message = f"unknown {vocabulary.vocabulary} `{name}`"
        help_ = suggest_name(name, vocabulary.members)
        problems.report("unknown-name", message, node.span, help_, vocabulary.severity)

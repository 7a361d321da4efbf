"""Find the classes that a policy reads of a call beyond its main class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from policyguard.compiler.build.entry_paths import selective_entries
from policyguard.compiler.build.expressions import Expressions, reads_field
from policyguard.compiler.build.messages import collect_message_fields
from policyguard.compiler.build.selectors.selector import compile_selector, complement
from policyguard.model.policy import Case, Policy

if TYPE_CHECKING:
    from policyguard.cel.syntax.ast import Expr

COUNT_CLASS = "count_class"
"""The function of `session` that counts calls by class."""


def find_read_classes(policy: Policy, expressions: Expressions) -> frozenset[str]:
    """Return the classes that matter even where they are not a call's main class.

    No other class needs to be evaluated once a call has its main class.
    """
    known = frozenset(entry.class_ for entry in policy.classify.classes)
    reads = expressions.all_reads() | collect_message_fields(policy)
    trees = expressions.trees_naming(COUNT_CLASS)
    counted = {name for tree in trees for name in _counted_classes(tree)}
    if None in counted or reads_field(reads, "call.classes"):
        return known
    found = {name for name in counted if name is not None}
    for _, entry in selective_entries(policy):
        if entry.classes is not None:
            # One that `outside` names matters less: it matches nothing by itself.
            found.update(filter(compile_selector(entry.classes), known))
            if isinstance(entry, Case):  # which others a call has says whether it is certain
                found.update(filter(compile_selector(complement(entry.classes)), known))
    changing = policy.classify.state_changing
    if isinstance(changing, tuple):
        found.update(changing)
    return known & found


def _counted_classes(node: Expr) -> Iterator[str | None]:
    """Yield the classes that an expression counts; None for one that depends on the call."""
    from policyguard.cel.syntax.ast import Call, Constant, iter_children  # slow import

    if isinstance(node, Call) and node.name == COUNT_CLASS:
        for argument in node.arguments:
            value = argument.raw_value if isinstance(argument, Constant) else None
            yield value if isinstance(value, str) else None
    for child in iter_children(node):
        yield from _counted_classes(child)

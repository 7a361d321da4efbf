"""Which names of a policy something uses."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.cel.syntax.tree import Constant, Expr, iter_children
from policyguard.compiler.build.entry_paths import learn_sections
from policyguard.compiler.build.expressions import reads_field
from policyguard.compiler.build.selectors import compile_glob
from policyguard.engines.yaml_tree import MappingNode, ScalarNode
from policyguard.engines.yaml_tree import Node as YamlNode
from policyguard.lint.context import LintContext
from policyguard.model.limits import FailuresLimit


def is_field_read(subject: LintContext, field: str) -> bool:
    """Whether an expression reads a dotted field, or the record that it is in."""
    return reads_field(subject.expressions.all_reads(), field)


def string_constants(subject: LintContext) -> set[str]:
    """All texts that stand in the policy's expressions."""
    return {text for tree in subject.cel_trees.values() for text in _texts(tree)}


def substituted_names(subject: LintContext) -> set[str]:
    """All names of params and lists that the policy's files write as `$name`."""
    layers = (subject.merged.top_layer, subject.merged.inherited)
    return {text[1:] for layer in layers for text in _scalars(layer) if text.startswith("$")}


def referenced_classes(subject: LintContext) -> set[str] | None:
    """The names and globs of classes that something selects; None where all of them matter."""
    policy = subject.policy
    named: set[str] = set()
    for entry in (*policy.rules, *policy.budgets, *policy.result_rules):
        named |= set(entry.classes.items if entry.classes is not None else ())
    named |= {level.partition(":")[2] for level in policy.limits if level.startswith("classes:")}
    for learn, _ in learn_sections(policy):
        if learn.ban == "class":
            return None
        named |= set(learn.except_ or ())
    changing = policy.classify.state_changing
    named |= set(changing if isinstance(changing, tuple) else ())
    for _, program in subject.expressions:
        if program.type.kind != "bool" and reads_field(program.reads, "call.class"):
            return None  # a key: each class is one
    named |= {str(item) for items in policy.lists.values() for item in items}
    named |= {str(param.value) for param in policy.params.values()}
    return named | string_constants(subject)


def uses_signatures(subject: LintContext) -> bool:
    """Whether anything depends on what a failure is and whose fault it was."""
    policy = subject.policy
    if policy.learn is not None or policy.radius or policy.blame:
        return True
    for limits in policy.limits.values():
        if limits.outage is not None or limits.no_progress is not None:
            return True
        if isinstance(limits.failures, FailuresLimit) and limits.failures.signature:
            return True
    return is_field_read(subject, "outcome.signature") or is_field_read(subject, "outcome.blame")


def matches_any(name: str, wanted: set[str]) -> bool:
    """Whether one of the names or globs in `wanted` fits."""
    return name in wanted or any(
        compile_glob(item)(name) for item in wanted if "*" in item or "?" in item
    )


def _texts(node: Expr) -> Iterator[str]:
    if isinstance(node, Constant) and isinstance(node.value, str):
        yield node.value
    for child in iter_children(node):
        yield from _texts(child)


def _scalars(node: YamlNode) -> Iterator[str]:
    if isinstance(node, ScalarNode):
        yield node.text
    elif isinstance(node, MappingNode):
        for _, value in node.entries:
            yield from _scalars(value)
    else:
        for item in node.items:
            yield from _scalars(item)

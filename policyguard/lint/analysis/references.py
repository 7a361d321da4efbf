"""Find the names that a policy uses."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.cel.syntax.ast import Constant, Expr, iter_children
from policyguard.compiler.build.entry_paths import learn_sections, selective_entries
from policyguard.compiler.build.expressions import reads_field
from policyguard.compiler.build.selectors.selector import compile_glob
from policyguard.engines.yaml_tree import MappingNode, ScalarNode
from policyguard.engines.yaml_tree import Node as YamlNode
from policyguard.lint.rule import LintContext
from policyguard.model.limits import limits_of


def is_field_read(context: LintContext, field: str) -> bool:
    """Return whether an expression reads a dotted field, or a record that contains it."""
    return reads_field(context.expressions.all_reads(), field)


def string_constants(context: LintContext) -> set[str]:
    """Return all string constants in the policy's expressions."""
    return {text for tree in context.cel_trees.values() for text in _texts(tree)}


def constant_texts(node: Expr) -> set[str]:
    """Return all string constants in an expression."""
    return set(_texts(node))


def substituted_names(context: LintContext) -> set[str]:
    """Return the names of params and lists that the policy refers to as `$name`."""
    layers = (context.merged.top_layer, context.merged.inherited)
    return {text[1:] for layer in layers for text in _scalars(layer) if text.startswith("$")}


def referenced_classes(context: LintContext) -> set[str] | None:
    """Return the names and globs of the classes in use, or None if all classes are."""
    policy = context.policy
    used: set[str] = set()
    entries = [entry for _, entry in selective_entries(policy)]
    for entry in entries:
        used |= set(entry.classes.items if entry.classes is not None else ())
    used |= {level.partition(":")[2] for level in policy.limits if level.startswith("classes:")}
    for learn, _ in learn_sections(policy):
        if learn.ban == "class":
            return None
        used |= set(learn.except_ or ())
    changing = policy.classify.state_changing
    used |= set(changing if isinstance(changing, tuple) else ())
    for _, program in context.expressions:
        if program.type.kind != "bool" and reads_field(program.reads, "call.class"):
            return None  # `call.class` partitions a key
    used |= {str(item) for items in policy.lists.values() for item in items}
    used |= {str(param.value) for param in policy.params.values()}
    return used | string_constants(context)


def uses_signatures(context: LintContext) -> bool:
    """Return whether anything depends on signatures or blame."""
    policy = context.policy
    if policy.learn is not None or policy.radius or policy.blame:
        return True
    for limits in policy.limits.values():
        if limits.outage is not None or limits.no_progress is not None:
            return True
        if any(failures.signature for failures in limits_of(limits, "failures")):
            return True
    return is_field_read(context, "outcome.signature") or is_field_read(context, "outcome.blame")


def matches_any(name: str, patterns: set[str]) -> bool:
    """Return whether a name equals one of the names, or matches one of the globs."""
    return name in patterns or any(compile_glob(one)(name) for one in patterns if is_glob(one))


def is_glob(name: str) -> bool:
    """Return whether a name contains a wildcard."""
    return "*" in name or "?" in name


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

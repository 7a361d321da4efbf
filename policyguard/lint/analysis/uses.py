"""Which names of a policy something uses."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.cel.tree import Constant, Node, children
from policyguard.compiler.expressions import reads_any
from policyguard.compiler.learn_sections import learns
from policyguard.compiler.selectors import glob
from policyguard.engines.yaml_tree import Mapping, Scalar
from policyguard.engines.yaml_tree import Node as YamlNode
from policyguard.lint.subject import Subject
from policyguard.model.limits import FailuresLimit


def reads(subject: Subject, field: str) -> bool:
    """Whether an expression reads a dotted field, or the record that it is in."""
    return reads_any(subject.expressions.all_reads(), field)


def constants(subject: Subject) -> set[str]:
    """All texts that stand in the policy's expressions."""
    return {text for tree in subject.conditions.values() for text in _texts(tree)}


def dollars(subject: Subject) -> set[str]:
    """All names of params and lists that the policy's files write as `$name`."""
    layers = (subject.layered.top, subject.layered.inherited)
    return {text[1:] for layer in layers for text in _scalars(layer) if text.startswith("$")}


def classes(subject: Subject) -> set[str] | None:
    """The names and globs of classes that something selects; None where all of them matter."""
    policy = subject.policy
    named: set[str] = set()
    for entry in (*policy.rules, *policy.budgets, *policy.result_rules):
        named |= set(entry.classes.items if entry.classes is not None else ())
    named |= {level.partition(":")[2] for level in policy.limits if level.startswith("classes:")}
    for learn, _ in learns(policy):
        if learn.ban == "class":
            return None
        named |= set(learn.except_ or ())
    changing = policy.classify.state_changing
    named |= set(changing if isinstance(changing, tuple) else ())
    for _, program in subject.expressions:
        if program.type.kind != "bool" and reads_any(program.reads, "call.class"):
            return None  # a key: each class is one
    named |= {str(item) for items in policy.lists.values() for item in items}
    named |= {str(param.value) for param in policy.params.values()}
    return named | constants(subject)


def outcomes(subject: Subject) -> bool:
    """Whether anything depends on what a failure is and whose fault it was."""
    policy = subject.policy
    if policy.learn is not None or policy.radius or policy.blame:
        return True
    for limits in policy.limits.values():
        if limits.outage is not None or limits.no_progress is not None:
            return True
        if isinstance(limits.failures, FailuresLimit) and limits.failures.signature:
            return True
    return reads(subject, "outcome.signature") or reads(subject, "outcome.blame")


def is_named(name: str, wanted: set[str]) -> bool:
    """Whether one of the names or globs in `wanted` fits."""
    return name in wanted or any(glob(item)(name) for item in wanted if "*" in item or "?" in item)


def _texts(node: Node) -> Iterator[str]:
    if isinstance(node, Constant) and isinstance(node.value, str):
        yield node.value
    for child in children(node):
        yield from _texts(child)


def _scalars(node: YamlNode) -> Iterator[str]:
    if isinstance(node, Scalar):
        yield node.text
    elif isinstance(node, Mapping):
        for _, value in node.entries:
            yield from _scalars(value)
    else:
        for item in node.items:
            yield from _scalars(item)

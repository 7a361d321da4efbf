"""What depends on a class as the main class of a call, and which class entries may overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from policyguard.cel.syntax.ast import Call, Expr, Identifier, Select, iter_tree
from policyguard.compiler.build.entry_paths import learn_sections, level_path
from policyguard.compiler.build.expressions import reads_field
from policyguard.compiler.build.selectors.selector import split_words, tool_globs_overlap
from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.engines.regex import Regex, RegexError
from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.references import constant_texts
from policyguard.lint.rule import LintContext
from policyguard.model.entry import Entry
from policyguard.model.policy import ClassEntry, Policy

_METADATA = frozenset(Entry.__struct_fields__)


class ClassUse(NamedTuple):
    """What a policy defines for a class as the main one: its text in reports, and its path."""

    text: str
    path: Path


ClassUses = dict[str, dict[tuple[str, Path], ClassUse]]
"""The uses of each class, by what they have in common with the same use of another class."""


def join_uses(uses: Iterable[ClassUse]) -> str:
    """Return the texts of uses, each once."""
    return ", ".join(dict.fromkeys(use.text for use in uses))


def find_lost(uses: ClassUses, name: str, other: str) -> list[ClassUse]:
    """Return what is defined for a class, and not for the other that is the main class instead."""
    if name == other:
        return []
    kept = uses.get(other, {})
    return [use for key, use in {**uses[""], **uses.get(name, {})}.items() if key not in kept]


def find_uses(context: LintContext) -> ClassUses:
    """Return what a policy defines for each class as the main class of a call.

    What it defines for any main class is that of the empty name.
    """
    found: ClassUses = {"": {}}
    policy = context.policy
    for level, limits in policy.limits.items():
        group, _, name = level.partition(":")
        for kind in limits.__struct_fields__ if group == "classes" else ():
            if kind not in _METADATA and getattr(limits, kind) is not None:
                path = (*level_path(level), kind)
                use = ClassUse(f"`limits.classes.{name}`", path)
                found.setdefault(name, {})["limits", (kind,)] = use
    for learn, path in learn_sections(policy):
        is_own = not context.merged.origin((*path, "ban")).startswith(PACK_PREFIX)
        if learn.ban == "class" and is_own:
            found[""]["ban", path] = ClassUse(f"`{path[0]}: {{ban: class}}`", (*path, "ban"))
        for name in learn.except_ or ():
            use = ClassUse(f"`{path[0]}: {{except: [{name}]}}`", (*path, "except"))
            found.setdefault(name, {})["except", path] = use
    for path, tree in context.cel_trees.items():
        reads = context.expressions.reads(*path)
        if not reads_field(reads, "call.class"):
            continue
        named = {
            text
            for kind, values in (("lists", policy.lists), ("params", _param_values(policy)))
            for name, items in values.items()
            if reads_field(reads, f"{kind}.{name}")
            for text in map(str, items)
        }
        names = _class_names(tree, {entry.class_ for entry in policy.classify.classes}, named)
        where = ".".join(str(part) for part in path if not isinstance(part, int))
        use = ClassUse(f"`call.class` in `{where}`", path)
        for name in names or ("",):
            found.setdefault(name, {})["when", path] = use
    return found


def _class_names(tree: Expr, classes: set[str], named: set[str]) -> set[str]:
    """Return the classes that an expression asks for; none if that cannot be seen.

    `named` are the texts that it reads from lists and params.
    """
    names = classes & (constant_texts(tree) | named)
    for node in iter_tree(tree):
        test = _TEXT_TESTS.get(node.name) if isinstance(node, Call) else None
        if isinstance(node, Call) and test is not None and _is_main_class(node.receiver):
            texts = constant_texts(node.arguments[0]) if node.arguments else set()
            names |= {name for name in classes for text in texts or named if test(name, text)}
    return names


def _finds(name: str, pattern: str) -> bool:
    try:
        return Regex(pattern).search(name)
    except RegexError:
        return True


_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
    "matches": _finds,
}


def _is_main_class(node: Expr | None) -> bool:
    return (
        isinstance(node, Select)
        and node.field == "class"
        and isinstance(node.operand, Identifier)
        and node.operand.name == "call"
    )


def _param_values(policy: Policy) -> dict[str, tuple[Any, ...]]:
    return {name: (param.value,) for name, param in policy.params.items()}


def may_overlap(first: ClassEntry, entry: ClassEntry) -> bool:
    """Return whether a tool name that `entry` matches may also match `first`, by what they list.

    An entry without words or tools depends on the arguments alone, which say too little.
    """
    if entry.words is None and entry.tools is None:
        return False
    if first.words is None and first.tools is None:
        return True
    words, other_words = _fold(first), _fold(entry)
    return (
        not words.isdisjoint(other_words | _tool_words(entry))
        or not other_words.isdisjoint(_tool_words(first))
        or any(tool_globs_overlap(a, b) for a in first.tools or () for b in entry.tools or ())
    )


def _fold(entry: ClassEntry) -> set[str]:
    return {word.casefold() for word in entry.words or ()}


def _tool_words(entry: ClassEntry) -> set[str]:
    return {word for tool in entry.tools or () for word in split_words(tool)}

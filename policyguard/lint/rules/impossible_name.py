r"""A name that no tool, server or agent can have.

A selector takes exact names and globs, in which `*` stands for any text and `?` for one character.
It takes no regex, no list in one text and no permission syntax such as `Bash(rm:*)`. In CEL, `==`,
`in` and `session.count()` compare exact text, so there a glob is not a name either. Invisible
characters, and letters of another alphabet that look like Latin ones, never match either.

The `words` of a class are single words: tool names are split at `_ - .` and camelCase.

`delete.*` is not reported: it is the glob for all names that begin with `delete.`.

Avoid:

    no-deletes: {tools: ["^delete_|drop_.*$"], effect: block}
    no-rm: {tools: ["Bash(rm:*)"], effect: block}
    few: {when: "call.tool == 'delete_*'", effect: ask}

Prefer:

    no-deletes: {tools: [delete_*, drop_*], effect: block}
    no-rm: {tools: [Bash], when: "call.command.contains('rm ')", effect: block}
    few: {tools: [delete_*], effect: ask}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.selectors import split_words
from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.compared_names import (
    SESSION_COUNT,
    find_compared_lists,
    find_compared_names,
)
from policyguard.lint.analysis.names import find_letter_problem, find_name_problem
from policyguard.lint.analysis.references import is_glob
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text

_SELECTORS = ("tools", "servers", "agents")
_SELECTOR_OF = {"call.tool": "tools", "call.server": "servers", "call.agent": "agents"}


def check(context: LintContext) -> Iterator[Finding]:
    """Report names in selectors and in CEL that nothing can have."""
    for path, name in _selector_names(context):
        if found := find_name_problem(name):
            key = path[:1] == ("limits",)
            yield Finding(context.merged.span_of(path, key=key), *found)
    yield from _check_words(context)
    reported: set[Path] = set()
    for path, tree in context.cel_trees.items():
        for field, text, span, part in find_compared_names(tree):
            if part != "matches" and (found := _explain_text(text, field)):
                yield Finding(context.subspan(path, span), *found)
        for name, field in find_compared_lists(tree):
            for index, item in enumerate(context.policy.lists.get(name, ())):
                item_path = ("lists", name, index)
                found = _explain_text(str(item), field)
                if found and item_path not in reported and context.owns(item_path):
                    reported.add(item_path)
                    message, help_text = found
                    if is_glob(str(item)):
                        message = f"{message}, in `{field} in lists.{name}`"
                        help_text = f"write `{_SELECTOR_OF[field]}: ${name}` there"
                    yield Finding(context.merged.span_of(item_path), message, help_text)


def _check_words(context: LintContext) -> Iterator[Finding]:
    """Report words of classes that no tool's name can have as one word."""
    for index, one in enumerate(context.policy.classify.classes):
        for item, word in enumerate(one.words or ()):
            found = find_letter_problem(word)
            if found is None and split_words(word.casefold()) != {word.casefold()}:
                message = f"{quote_text(word)} is never one word of a tool's name"
                found = message, "write single words, or select whole names with `tools`"
            if found is not None:
                path = ("classify", "classes", index, "words", item)
                yield Finding(context.merged.span_of(path), *found)


def _selector_names(context: LintContext) -> Iterator[tuple[Path, str]]:
    """Yield each name in a selector, with its path."""
    policy = context.policy
    for section, entries in (("rules", policy.rules), ("budgets", policy.budgets)):
        for entry in entries:
            for key in _SELECTORS:
                selector = getattr(entry, key)
                for index, name in enumerate(selector.items if selector is not None else ()):
                    inside = ("outside", index) if selector.outside else (index,)
                    yield (section, entry.id, key, *inside), name
    for index, one in enumerate(policy.classify.classes):
        for item, name in enumerate(one.tools or ()):
            yield ("classify", "classes", index, "tools", item), name
    for level in policy.limits:
        group, _, name = level.partition(":")
        if group == "tools":
            yield ("limits", "tools", name), name


def _explain_text(name: str, field: str) -> tuple[str, str] | None:
    """Return why a text in CEL can equal no name, and what to write instead."""
    found = find_name_problem(name, is_free_text=field in ("call.agent", "call.server"))
    if found is None and is_glob(name):
        message = f"{quote_text(name)} is a glob, but here it is compared as exact text"
        globs = f"[{quote_text(name).strip('`')}]"
        if field == SESSION_COUNT:
            return message, f"count the calls with a budget: `{{tools: {globs}, calls: …}}`"
        return message, f"write `{_SELECTOR_OF[field]}: {globs}`"
    return found

r"""A name that no tool, server or agent can have.

A selector takes exact names and globs, in which `*` stands for any text and `?` for one character.
It takes no regex, no list in one text and no permission syntax such as `Bash(rm:*)`. In CEL, `==`,
`in` and `session.count()` compare exact text, so there a glob is not a name either. Invisible
characters, and letters of another alphabet that look like Latin ones, never match either.

Avoid:

    no-deletes: {tools: ["^delete_|drop_.*$"], effect: block}
    no-rm: {tools: ["Bash(rm:*)"], effect: block}
    few: {when: "call.tool == 'delete_*'", effect: ask}

Prefer:

    no-deletes: {tools: [delete_*, drop_*], effect: block}
    no-rm: {tools: [Bash], when: "call.command.startsWith('rm ')", effect: block}
    few: {tools: [delete_*], effect: ask}
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.compared_names import SESSION_COUNT, find_compared_names
from policyguard.lint.analysis.references import is_glob
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text

_SELECTORS = ("tools", "servers", "agents")
_SELECTOR_OF = {
    "call.tool": "tools",
    "call.server": "servers",
    "call.agent": "agents",
    SESSION_COUNT: "tools",
}
_LOOKALIKE_SCRIPTS = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "FULLWIDTH")


def check(context: LintContext) -> Iterator[Finding]:
    """Report names in selectors and in CEL that nothing can have."""
    for path, name in _selector_names(context):
        if found := _explain(name):
            key = path[:1] == ("limits",)
            yield Finding(context.merged.span_of(path, key=key), *found)
    for path, tree in context.cel_trees.items():
        for field, name, span in find_compared_names(tree):
            found = _explain(name)
            if found is None and is_glob(name):
                shown = quote_text(name)
                message = f"{shown} is a glob, but here it is compared as exact text"
                found = message, f"write `{_SELECTOR_OF[field]}: [{shown.strip('`')}]`"
            if found:
                yield Finding(context.subspan(path, span), *found)


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


def _explain(name: str) -> tuple[str, str] | None:
    """Return why nothing can have a name, and what to write instead."""
    shown = quote_text(name)
    invisible = {c for c in name if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")}
    if invisible:
        clean = "".join(c for c in name if c not in invisible)
        codes = ", ".join(f"U+{ord(c):04X}" for c in sorted(invisible))
        return f"{shown} contains an invisible character ({codes})", f"write {quote_text(clean)}"
    if letter := _lookalike(name):
        message = f"{shown} mixes Latin letters with {unicodedata.name(letter).lower()}"
        return message, "type the name again in one alphabet"
    tool, bracket, rest = name.partition("(")
    if bracket and rest.endswith(")"):
        command = rest.removesuffix(")").removesuffix("*").removesuffix(":")
        help_text = f"write {quote_text(tool)}"
        if command:
            help_text += f", and `when: call.command.startsWith({command!r})`"
        return f"{shown} is written as a call or a permission, not as a name", help_text
    if len(name) > 1 and name.startswith("/") and name.endswith("/"):
        return f"{shown} is written as a regex, not as a glob", f"write `*{name[1:-1]}*`"
    for separator in "|,":
        if separator in name:
            items = ", ".join(_strip_regex(one.strip()) for one in name.split(separator))
            return f"{shown} is one name; a glob has no alternatives", f"write `[{items}]`"
    if _strip_regex(name) != name or any(c in name for c in "\\[](){}"):
        help_text = f"write {quote_text(_strip_regex(name))}; `*` stands for any text"
        return f"{shown} is written as a regex, not as a glob", help_text
    return None


def _strip_regex(name: str) -> str:
    """Return a regex as a glob: `^a_` as `a_*`. The dot of `fs.*` belongs to the name."""
    text = name.removeprefix("^").removesuffix("$").replace(".+", "*")
    before, found, rest = text.partition(".*")
    if found and not before[-1:].isalnum():
        text = f"{before}*{rest}"
    starts, ends = name.startswith("^"), name.endswith("$")
    if starts and not ends and not text.endswith("*"):
        return f"{text}*"
    return f"*{text}" if ends and not starts and not text.startswith("*") else text


def _lookalike(name: str) -> str:
    """Return a letter of another script in a name with Latin letters; empty if there is none."""
    scripts = {letter: unicodedata.name(letter, "") for letter in name if letter.isalpha()}
    if not any(text.startswith("LATIN") for text in scripts.values()):
        return ""
    return next((one for one, text in scripts.items() if text.startswith(_LOOKALIKE_SCRIPTS)), "")

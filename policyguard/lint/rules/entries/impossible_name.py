r"""A name that no tool, server or agent can have.

A selector takes exact names and globs, in which `*` stands for any text and `?` for one character.
It takes no regex, no list in one text and no permission syntax such as `Bash(rm:*)`. In CEL, `==`,
`in` and `session.count()` compare exact text, so there a glob is not a name either. Invisible
characters, and letters of another alphabet that look like Latin ones, never match either.

The `words` of a class are single words: tool names are split at `_ - .` and camelCase.

The `paths` of a rule or budget are globs of whole paths, so they take no `^` and `$` and no
`file://`. Its `commands` are words as the program gets them, so they take no `^` and `$`
either, and no dash but `-`.

The names of arguments in `classify` are plain names, or paths of them (`options.path`): no glob, no
JSONPath, no index. In roles, targets and users, too, `*` is compared as exact text.

A tool that really has such a name: ignore the finding where it is, with
`# policyguard: ignore[lint/impossible-name]` and a reason. To name a tool whose name begins with
`$`, which stands for a param or a list, write `?web_search`.

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

import re
from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import selective_entries
from policyguard.compiler.build.selectors.selector import split_words
from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.compared_names import (
    NAME_FIELDS,
    SESSION_COUNT,
    find_compared_names,
    find_listed_names,
)
from policyguard.lint.analysis.names import (
    find_argument_problem,
    find_command_problem,
    find_letter_problem,
    find_name_problem,
    find_path_problem,
)
from policyguard.lint.analysis.references import is_glob
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text
from policyguard.model.tool_name import MCP_PREFIX, join_tool_name

_SELECTORS = ("tools", "servers", "agents")
_LIKE = {
    "call.targets": "use `call.targets.exists(t, t.like('…'))`",
    "session.roles": "use `session.roles.exists(r, r.startsWith('…'))`",
}
"""What to write for a pattern that is compared with an item of a list."""
_GLOB_AS_REGEX = re.compile(r"[_-]\*")
_REGEX_ONLY = frozenset("\\[](){}^$|+.?")
_SELECTOR_OF = {"call.tool": "tools", "call.server": "servers", "call.agent": "agents"}


def check(context: LintContext) -> Iterator[Finding]:
    """Report names in selectors and in CEL that nothing can have."""
    for path, name in _selector_names(context):
        if found := _find_bare_server(name, is_server="servers" in path) or find_name_problem(name):
            key = path[:1] == ("limits",)
            yield Finding(context.merged.span_of(path, key=key), *found)
    for selector, find in (("paths", find_path_problem), ("commands", find_command_problem)):
        for path, text in _selected(context, (selector,)):
            if found := find(text):
                yield Finding(context.merged.span_of(path), *found)
    yield from _check_words(context)
    yield from _check_arguments(context)
    for one in find_compared_names(context):
        explain = _explain_regex if one.part == "matches" else _explain_text
        if found := explain(one.text, one.field):
            yield Finding(context.subspan(one.path, one.span), *found)
    reported: set[Path] = set()
    for path, text, name, field in find_listed_names(context):
        found = _explain_text(text, field)
        if found and path not in reported:
            reported.add(path)
            message, help_text = found
            if is_glob(text) and field in NAME_FIELDS:
                message = f"{message}, in `{field} in lists.{name}`"
                help_text = f"write `{_SELECTOR_OF[field]}: ${name}` there"
            yield Finding(context.merged.span_of(path), message, help_text)


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


def _check_arguments(context: LintContext) -> Iterator[Finding]:
    """Report names of arguments that no argument can have."""
    classify = context.policy.classify
    fingerprint = classify.fingerprint
    for path, names in (
        (("targets",), classify.targets),
        (("shell", "arguments"), classify.shell.arguments),
        (("shell", "lists"), classify.shell.lists),
        (("fingerprint", "ignore"), fingerprint.ignore),
        (("fingerprint", "fold"), fingerprint.fold),
    ):
        for index, name in enumerate(names):
            has_items = path[0] != "fingerprint"
            if name != "*" and (found := find_argument_problem(name, has_items=has_items)):
                yield Finding(context.merged.span_of(("classify", *path, index)), *found)
    changing = classify.state_changing
    for index, name in enumerate(changing if isinstance(changing, tuple) else ()):
        if is_glob(name):
            message = f"{quote_text(name)} is a glob, but here it is compared as exact text"
            path_ = ("classify", "state_changing", index)
            yield Finding(context.merged.span_of(path_), message, "list the classes")


def _find_bare_server(name: str, *, is_server: bool) -> tuple[str, str] | None:
    """Report `mcp__fs`, which is neither a server's name nor a tool's full name."""
    server = name.removeprefix(MCP_PREFIX).removesuffix("__")
    if is_server and is_glob(name) and name.startswith(MCP_PREFIX) and len(server) < len(name):
        bare = server.partition("__")[0] or "*"
        message = f"no server's name begins with `{MCP_PREFIX}`, as the full names of tools do"
        return message, f"write `{bare}`"
    if not name.startswith(MCP_PREFIX) or "__" in server or not server or is_glob(name):
        return None
    if is_server:
        return f"no server is called {quote_text(name)}, only `{server}`", f"write `{server}`"
    message = f"{quote_text(name)} names a server, not a tool"
    return message, f"write `{join_tool_name('*', server)}`"


def _selector_names(context: LintContext) -> Iterator[tuple[Path, str]]:
    """Yield each name in a selector, with its path."""
    policy = context.policy
    yield from _selected(context, _SELECTORS)
    for index, one in enumerate(policy.classify.classes):
        for item, name in enumerate(one.tools or ()):
            yield ("classify", "classes", index, "tools", item), name
    for level in policy.limits:
        group, _, name = level.partition(":")
        if group == "tools":
            yield ("limits", "tools", name), name


def _selected(context: LintContext, keys: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    """Yield each item of these selectors of all entries, with its path."""
    for path, entry in selective_entries(context.policy):
        for key in keys:
            selector = getattr(entry, key)
            for index, item in enumerate(selector.items if selector is not None else ()):
                inside = ("outside", index) if selector.outside else (index,)
                yield (*path, key, *inside), item


def _explain_text(name: str, field: str) -> tuple[str, str] | None:
    """Return why a text in CEL can equal no name, and what to write instead."""
    if field not in (*NAME_FIELDS, SESSION_COUNT):
        if "*" not in name:
            return None
        message = f"{quote_text(name)} is compared as exact text, without wildcards"
        return message, _LIKE.get(field, "compare a part with `startsWith` or `endsWith`")
    found = _find_bare_server(name, is_server=True) if field == "call.server" else None
    found = found or find_name_problem(name, is_free_text=field in ("call.agent", "call.server"))
    if found is None and is_glob(name):
        message = f"{quote_text(name)} is a glob, but here it is compared as exact text"
        globs = f"[{quote_text(name).strip('`')}]"
        if field == SESSION_COUNT:
            return message, f"count the calls with a budget: `{{tools: {globs}, calls: …}}`"
        return message, f"write `{_SELECTOR_OF[field]}: {globs}`"
    return found


def _explain_regex(pattern: str, field: str) -> tuple[str, str] | None:
    """Return why a regex looks like a glob, and what to write instead."""
    glob = pattern.removeprefix("^").removesuffix("$")
    if field not in NAME_FIELDS or not _GLOB_AS_REGEX.search(glob) or _REGEX_ONLY & set(glob):
        return None
    message = f"{quote_text(pattern)} is written as a glob, but `matches` takes a regex"
    return message, f"write `{_SELECTOR_OF[field]}: [{quote_text(glob).strip('`')}]`"

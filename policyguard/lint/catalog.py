"""Every code that a finding can have, and its page: what it means and what to do.

The page of a lint rule is the docstring of its module.
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.rule import rule_code, rule_page
from policyguard.lint.rules import RULES

LOAD_PAGES: dict[str, str] = {
    "yaml/alias-cycle": "An alias (`*name`) stands inside its own anchor. Write the value out.",
    "yaml/boolean-trap": (
        "YAML 1.2 reads `yes`, `no`, `on` and `off` as text, where YAML 1.1 read booleans. Write "
        "`true` or `false`."
    ),
    "yaml/control-character": "The file has a control character. Remove or escape it.",
    "yaml/duplicate-key": (
        "A key stands twice in one mapping; most YAML readers keep the last and drop the first "
        "without a word. Rename or remove one."
    ),
    "yaml/empty": "The file has nothing in it. A policy begins with `policyguard: 1` and a `name`.",
    "yaml/encoding": "Policies are UTF-8 text. Save the file as UTF-8.",
    "yaml/key": "Keys must be plain strings. Quote the key, or write a string.",
    "yaml/merge-key": "`<<` is not part of YAML 1.2. Use `extends`, or write the keys out.",
    "yaml/number": "This is no number that the language can hold.",
    "yaml/number-trap": (
        "YAML 1.1 read this as another number (`017` as octal, `12:30` as base 60, `1_000` with "
        "separators). Write it in plain decimal digits, or quote it if it is text."
    ),
    "yaml/several-documents": "A policy file holds one document. Remove the `---` in the middle.",
    "yaml/syntax": "The file is not YAML. The caret shows where the reader gave up.",
    "yaml/tag": "Tags such as `!!python/object` or `!mine` are not allowed. Remove the tag.",
    "yaml/too-deep": "Policies nest at most 64 levels.",
    "yaml/too-large": "A policy file (or what its aliases expand to) is larger than allowed.",
    "yaml/unknown-anchor": "An alias (`*name`) has no anchor (`&name`) before it.",
    "load/address": "`extends` takes pack names and local files, never addresses of a network.",
    "load/extends-cycle": "Files extend each other in a circle. The message shows the chain.",
    "load/not-a-file": "This path is a folder or something else that is no file.",
    "load/not-a-policy": (
        "A file that `extends` names has no key `policyguard`. Nothing of it is shown: it may be "
        "anything."
    ),
    "load/not-found": "No pack and no file has this name. Paths start at the including file.",
    "load/outside-folder": (
        "A file that a policy names (`schemas`) lies in the policy's own folder, links followed."
    ),
    "load/outside-pack": "A pack may only extend files of its own folder, and other packs.",
    "load/too-deep": "Policies extend each other in too long a chain.",
    "load/too-large": "The layers of this policy are more, or larger, than allowed.",
    "load/unreadable": "The file cannot be read; the message has the system's reason.",
    "schema/conflict": "These keys cannot stand together. Keep one of them.",
    "schema/deprecated": (
        "The key still works, and a later version of the language will refuse it. The help says "
        "what to write instead."
    ),
    "schema/empty": "There must be something here.",
    "schema/missing-key": "A key that this entry needs is missing.",
    "schema/name": "This cannot be a name here; the help says which names can.",
    "schema/not-alive": (
        "The key belongs to the language, but this version of policyguard does not do anything "
        "with it yet. It is refused: a policy must never silently do nothing. Remove it, or "
        "use a version in which its step has come to life."
    ),
    "schema/too-long": "There are more items, or characters, than allowed.",
    "schema/type": "The value is of another type than this key takes.",
    "schema/unknown-key": (
        "No such key exists here. A misspelt key would silently never match, so it is an error. "
        "The help names the closest key, or those that exist."
    ),
    "schema/value": "This value is not one of those that the key takes.",
    "scalar/amount": "An amount is a number of at least 0: `3`, `2.50`, `500k`.",
    "scalar/date": "A day is written `2026-03-31`.",
    "scalar/glob": (
        "In the name of a tool, server, class or agent only `*` and `?` are wild; `[ ] { } !` and "
        "white space stand in no name."
    ),
    "scalar/count": "A whole number is wanted: `3`, or with a unit `500k`, `2M`.",
    "scalar/number": "A number is wanted.",
    "scalar/duration": "A duration is a number and a unit: `500ms`, `60s`, `5m`, `2h`, `30d`.",
    "scalar/environment": (
        "A param is read from an environment variable whose value does not fit its type, `min` or "
        "`max`. It is never clamped: correct the environment, or the bounds."
    ),
    "scalar/param": "The param's value, `min` and `max` do not fit together.",
    "scalar/quoted-number": "A number is wanted, and this is text in quotes. Remove the quotes.",
    "scalar/time": "Times are written in RFC 3339: `2026-03-06T10:00:00Z`.",
    "reference/ambiguous-id": "Several entries end in this id. Write more of it.",
    "reference/duplicate-id": "Two entries of one list have the same id.",
    "reference/idle": (
        "This key can do nothing where it stands, and a policy must not silently do nothing. The "
        "message says what it would need; remove it, or give it that."
    ),
    "reference/list": "A list is wanted here, and `$name` stands for something else.",
    "reference/list-cycle": "Lists contain each other in a circle.",
    "reference/mixed-list": "All items of a list must be of one type.",
    "reference/never-shrinks": (
        "A `radius` shrinks after failures, and nothing says after how many. Give `shrink_after`, "
        "or a `learn` section, whose `corroborate` is the default."
    ),
    "reference/no-targets": (
        "A `radius` counts the targets of a call, and `ban: target` bans by them, and "
        "`classify.targets` names no argument that holds any: neither could ever refuse a call. "
        "Name the arguments, or remove the section."
    ),
    "reference/not-in-list": "`remove` names an item that the inherited list does not have.",
    "reference/placeholder": (
        "`{…}` in a message must be a dotted field of `call` or `tags`, or one of `{rule} {limit} "
        "{used} {left} {retry_after}`."
    ),
    "reference/shadowed": "An earlier entry matches everything that this one would.",
    "reference/tag": "The tag's default and `one_of` do not fit its type.",
    "reference/tie": (
        "Two globs of `limits.tools` with equally long literal prefixes fit the same tools, so "
        "that neither is more specific. Make one more precise."
    ),
    "reference/too-many": "Lists within lists give more items than allowed. Shorten them.",
    "reference/unreachable": (
        "The limit wants more same calls than its window holds, so it can never refuse. Widen the "
        "window, or lower `max`."
    ),
    "reference/bounds": (
        "A window (or `longest` times `max` of a cycle) looks back further than "
        "`bounds.window_entries`. Shorten it, or raise the bound."
    ),
    "reference/unknown-class": "No entry of `classify.classes` gives this class.",
    "reference/unknown-field": "The placeholder names a field that does not exist.",
    "reference/unknown-id": "`disable` names an entry that no layer has.",
    "reference/unknown-list": "There is no such inherited list to add to or remove from.",
    "reference/unknown-name": "`$name` is neither a param nor a list of this policy.",
    "reference/unknown-pattern": "`patterns` has no entry of this name.",
    "reference/unknown-signature": "No entry of `signatures` has this id.",
    "reference/unknown-tag": "`tags` does not declare this tag.",
    "regex/example": "A pattern does not do what its own example says.",
    "regex/syntax": (
        "RE2 does not take this pattern; the message has its reason. RE2 has no look-around and no "
        "back references, which is why it is always fast."
    ),
    "example/match": "A rule matches a call of its `examples.no_match`.",
    "example/no-match": "A rule does not match a call of its `examples.match`.",
    "reference/unknown-tool": (
        "The tools that `schemas` describes have none of this name. It holds for the file that "
        "names them and for those that extend it; the names are those under which calls are "
        "checked."
    ),
    "reference/unknown-argument": (
        "No tool that this entry is about has an argument of this name, says `schemas`."
    ),
    "reference/unmatched-tools": (
        "None of the tools that `schemas` describes has a name that this matches. Is it meant for "
        "tools that are still to come?"
    ),
    "json/duplicate-key": "A key stands twice in one object. Rename or remove one.",
    "json/syntax": "The file is not JSON. The caret shows where the reader gave up.",
    "json/too-deep": "JSON files nest at most 64 levels.",
    "json/too-large": "The JSON file has more values than allowed.",
    "tools/form": (
        "`schemas` names a JSON file with the answer of an MCP server to `tools/list`, or with the "
        "list of functions as it goes to a model, or with a list of several such. Each tool has a "
        "`name`."
    ),
    "tools/incomplete": (
        "The answer to `tools/list` has a `nextCursor`: it is one page of several. With some of "
        "the tools missing, right names would be taken for misspelt ones. Ask for the other pages, "
        "and put all of them into a list: `[page, page]`."
    ),
    "tools/malformed": "What describes a tool's arguments here is not a JSON Schema.",
    "config/conflict": (
        "A project's settings stand in `.policyguard.toml` or in its `pyproject.toml`, not in both."
    ),
    "config/syntax": "The file with the settings is not TOML.",
    "config/unknown-key": "There is no such setting. The help names a close one, or its table.",
    "config/value": "The setting does not take this value.",
    "cel/always-present": "`has()` asks for a field that is always there.",
    "cel/bad-argument": "A constant argument of this function is not one that it takes.",
    "cel/bad-escape": "The string has an escape that CEL does not know. In `r'…'` none is read.",
    "cel/bad-literal": "This literal has no value (a timestamp or duration out of range, say).",
    "cel/bad-macro": "A macro takes a plain name for its variable, and an expression.",
    "cel/bad-regex": "RE2 does not take this pattern; the message has its reason.",
    "cel/invalid-argument": "The argument of this function can never be right.",
    "cel/maybe-absent": (
        "The field may be absent, and reading it then is an error (which counts against the call). "
        "Ask `has(field)` first."
    ),
    "cel/never-equal": "Values of these two types are never equal.",
    "cel/no-such-overload": "The operator or function does not take values of these types.",
    "cel/not-alive": (
        "The name belongs to the language, but this version of policyguard does not know its value "
        "yet. See schema/not-alive."
    ),
    "cel/not-available": "CEL has this function; policyguard does not know it yet.",
    "cel/not-bool": "A condition must be true or false; this expression is something else.",
    "cel/not-constant": "This argument must be a literal, so that it can be checked at load.",
    "cel/number-range": "The number does not fit into 64 bits.",
    "cel/syntax": "This is not CEL. The caret shows where the parser gave up.",
    "cel/too-deep": "The expression nests deeper than CEL bounds allow (docs/cel.md).",
    "cel/too-long": "The expression is longer than CEL bounds allow (docs/cel.md).",
    "cel/undeclared-reference": "No variable or function has this name here.",
    "cel/unknown-field": "The record has no such field. The help names a close one.",
    "cel/unknown-name": "The policy declares no class, signature or value of this name.",
    "cel/wrong-type": "The expression gives a value of another type than is wanted here.",
    "cel/wrong-argument-count": "The function takes another number of arguments.",
}

_IGNORING: dict[str, str] = {
    "lint/ignore-syntax": (
        "A finding is ignored with `# policyguard: ignore[code] reason`, at the end of its line "
        "or alone in the line above, or for a whole file with `ignore-file[code]`. Several codes "
        "are separated by commas. The reason is for whoever reads the policy next, and without "
        "it nothing is ignored. What keeps a policy from loading cannot be ignored."
    ),
    "lint/unknown-code": (
        "A comment ignores a code that no finding has. The help names the closest code."
    ),
    "lint/unused-ignore": (
        "A comment ignores a finding that is not there, or no longer. Take it out: it would hide "
        "the next one."
    ),
}

PAGES = {**LOAD_PAGES, **_IGNORING, **{rule_code(rule): rule_page(rule) for rule in RULES}}
"""Every code that a finding can have, with its page."""


__all__ = ["PAGES", "explain", "render_document"]


def explain(code: str) -> str | None:
    """The page of a code, with its heading; None where there is no such code."""
    text = PAGES.get(code)
    return f"{code}\n\n{text}" if text is not None else None


def render_document() -> Iterator[str]:
    """The lines of `docs/diagnostics.md`."""
    yield "# Diagnostics"
    yield ""
    yield "Made by `python -m policyguard.lint.catalog`. `policyguard explain CODE` prints one page."
    for name, text in PAGES.items():
        yield ""
        yield f"## {name}"
        yield ""
        yield text


if __name__ == "__main__":
    from pathlib import Path

    Path("docs/diagnostics.md").write_text("\n".join(render_document()) + "\n", encoding="utf-8")

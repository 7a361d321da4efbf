"""All diagnostic codes: their pages, and the selection of findings by code.

The page of a lint rule is its module's docstring. `policyguard explain CODE` prints a page, and
`docs/diagnostics.md` has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from policyguard.compiler.build.selectors.selector import compile_glob
from policyguard.journal.findings import PAGES as JOURNAL_PAGES
from policyguard.lint.rule import rule_code, rule_page
from policyguard.lint.rules import RULES
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text
from policyguard.model.errors import PolicyguardError

LOAD_PAGES: dict[str, str] = {
    "yaml/alias-cycle": (
        "An alias (`*name`) refers to an anchor that contains it. Write the value out."
    ),
    "yaml/boolean-trap": (
        "YAML 1.1 read `yes`, `no`, `on` and `off` as booleans; YAML 1.2 reads them as text. "
        "Write `true` or `false`."
    ),
    "yaml/control-character": "The file contains a control character. Remove or escape it.",
    "yaml/duplicate-key": (
        "A mapping contains the same key twice. Most YAML readers silently keep only the last "
        "one. Rename or remove one."
    ),
    "yaml/empty": (
        "The file is empty. A policy starts with `policyguard: 1` and a `name`, a file of tests "
        "with `policy` and `tests`."
    ),
    "yaml/encoding": "Policies are UTF-8 text. Save the file as UTF-8.",
    "yaml/key": "Keys must be plain strings. Quote the key, or use a string.",
    "yaml/merge-key": "YAML 1.2 has no `<<`. Use `extends`, or write the keys out.",
    "yaml/number": "Not a number the language supports.",
    "yaml/number-trap": (
        "YAML 1.1 read this as a different number (`017` as octal, `12:30` in base 60, `1_000` "
        "with separators). Write plain decimal digits, or quote it if it is text."
    ),
    "yaml/several-documents": "A policy file holds one document. Remove the `---` in the middle.",
    "yaml/syntax": "The file is not valid YAML. The caret shows where parsing failed.",
    "yaml/tag": "Tags such as `!!python/object` or `!mine` are not allowed. Remove the tag.",
    "yaml/too-deep": "Policies may nest at most 64 levels deep.",
    "yaml/too-large": "The policy file, or what its aliases expand to, is too large.",
    "yaml/unknown-anchor": (
        "An alias (`*name`) refers to an anchor (`&name`) not defined before it."
    ),
    "load/address": "`extends` takes pack names and local files, never network addresses.",
    "load/extends-cycle": "Files extend each other in a cycle. The message shows the chain.",
    "load/not-a-file": "This path is a folder, or not a regular file.",
    "load/not-a-policy": (
        "A file named in `extends` has no `policyguard` key. Its content is not shown, because it"
        " could be anything."
    ),
    "load/not-found": (
        "No pack or file has this name. Relative paths start at the file that contains them."
    ),
    "load/outside-folder": (
        "A file named in a policy (`schemas`) must be inside the policy's folder, also after "
        "symbolic links are resolved."
    ),
    "load/outside-pack": "A pack may only extend files in its own folder and other packs.",
    "load/too-deep": "The chain of `extends` is too long.",
    "load/too-large": "The policy has too many layers, or they are too large.",
    "load/unreadable": "The file cannot be read. The message gives the system's reason.",
    "schema/conflict": "These keys exclude each other. Keep one of them.",
    "schema/deprecated": (
        "The key still works, but a later version of the language will reject it. The help shows "
        "its replacement."
    ),
    "schema/empty": "A value is required here.",
    "schema/missing-key": "The entry lacks a required key.",
    "schema/name": "This name is not allowed here. The help shows which names are.",
    "schema/unsupported": "This version does not support the key. Remove it or upgrade.",
    "schema/too-long": "There are more items or characters than allowed.",
    "schema/type": "The value has the wrong type for this key.",
    "schema/unknown-key": (
        "No such key exists here. A misspelt key would never match, so it is an error. The help "
        "names the closest key, or lists the keys that exist."
    ),
    "schema/value": "The key does not accept this value.",
    "scalar/amount": "An amount is a number of at least 0: `3`, `2.50`, `500k`.",
    "scalar/date": "Write dates as `2026-03-31`.",
    "scalar/glob": (
        "In names of tools, servers, classes and agents, only `*` and `?` are wildcards. `[ ] { }"
        " !` and white space are not allowed."
    ),
    "scalar/count": "Write a whole number: `3`, or with a unit `500k`, `2M`.",
    "scalar/number": "Write a number.",
    "scalar/duration": "A duration is a number and a unit: `500ms`, `60s`, `5m`, `2h`, `30d`.",
    "scalar/environment": (
        "A param reads an environment variable whose value does not match the param's type, `min`"
        " or `max`. It is never clamped: correct the variable or the bounds."
    ),
    "scalar/param": "The param's value, `min` and `max` contradict each other.",
    "scalar/quoted-number": "A number is required, but this is quoted text. Remove the quotes.",
    "scalar/time": "Write times in RFC 3339: `2026-03-06T10:00:00Z`.",
    "reference/ambiguous-id": (
        "Several entries have this in their id. Use a longer one, or a glob where all are meant."
    ),
    "reference/duplicate-id": "Two entries of one list have the same id.",
    "reference/no-effect": "This key has no effect here. Remove it, or add what the message names.",
    "reference/locked": (
        "A layer below has locked this entry, or an entry that relies on it: no later layer may "
        "override, disable, except or loosen it. `docs/policy-language.md` lists what that means."
    ),
    "reference/list": "A list is required here, but `$name` is not a list.",
    "reference/list-cycle": "Lists contain each other in a cycle.",
    "reference/mixed-list": "All items of a list must have the same type.",
    "reference/never-shrinks": (
        "A `radius` shrinks after failures, but nothing says after how many. Set `shrink_after`, "
        "or add a `learn` section, whose `corroborate` is the default."
    ),
    "reference/no-targets": (
        "An entry reads a call's targets (`radius`, `ban: target`, `same: target`, "
        "`call.targets`), but `classify.targets` names no argument that holds targets, so it can "
        "refuse no call. Name the arguments, or remove the entry."
    ),
    "reference/no-command": (
        "`call.command` or `commands` reads a shell command, but `classify.shell.arguments` names "
        "no argument that holds one, so it is always empty. Name the arguments, or extend `core`."
    ),
    "reference/no-paths": (
        "`call.paths` or `paths` reads paths, but `classify.paths` names no argument that holds "
        "one, so only commands are searched for them. Name the arguments, or extend `core`."
    ),
    "reference/not-in-list": "`remove` names an item that the inherited list does not contain.",
    "reference/placeholder": (
        "`{…}` in a message must be a dotted field of `call` or `tags`, or one of `{rule} {limit}"
        " {used} {left} {retry_after}`. Doubled braces, `{{…}}`, are text."
    ),
    "reference/selector": (
        "An item of `commands`, `paths` or `hosts` means nothing, so it could match no call. "
        "A command pattern is `program word… -flag… !-flag`, a path glob knows `*`, `**` and `?`, "
        "and a host is `x.org`, or `*.x.org` for its subdomains."
    ),
    "reference/shadowed": "An earlier entry matches everything that this one would.",
    "reference/tag": "The tag's default and `one_of` do not match its type.",
    "reference/tie": (
        "Two globs in `limits.tools` with literal prefixes of the same length match the same "
        "tools, so neither is more specific. Make one more precise. Of a full name such as "
        "`mcp__fs__del*`, the own name (`del*`) counts first."
    ),
    "reference/too-many": "Nested lists expand to more items than allowed. Shorten them.",
    "reference/unreachable": (
        "`max` exceeds the window, so the limit never fires. Raise `window` or lower `max`."
    ),
    "reference/budget": (
        "The keys of this budget do not go together: it could not be counted as they say. The "
        "message names what can."
    ),
    "reference/bounds": (
        "A window (or `longest` times `max` of a cycle) exceeds `bounds.window_entries`. Shorten "
        "it, or raise the bound."
    ),
    "reference/unknown-class": "No entry of `classify.classes` assigns this class.",
    "reference/unknown-field": "The placeholder names a field that does not exist.",
    "reference/unknown-id": (
        "`disable` or an exception names an entry that no layer has. An exception waives rules, "
        "limits and budgets, no learned constraints."
    ),
    "reference/unknown-list": "There is no inherited list of this name to add to or remove from.",
    "reference/unknown-name": "`$name` is neither a param nor a list of this policy.",
    "reference/unknown-pattern": "`patterns` has no entry of this name.",
    "reference/unknown-signature": "No entry of `signatures` has this id.",
    "reference/mark": "An example must say which keys of a mark are set, if the mark has keys.",
    "reference/mark-keys": (
        "Of the keys of a mark only fingerprints are kept, so they can be asked for with `in`, and "
        "counted with `size`, but not read."
    ),
    "reference/unknown-mark": "`marks` does not declare this mark.",
    "reference/unknown-tag": "`tags` does not declare this tag.",
    "regex/example": "A pattern fails one of its own examples.",
    "regex/own-label": (
        "A result rule redacts with a pattern that matches the `[name]` that replaces its matches, "
        "so no result would ever be clean. Rename the pattern, or let it match less."
    ),
    "regex/syntax": (
        "RE2 rejects this pattern; the message gives its reason. RE2 has no look-around and no "
        "backreferences, which is why it always runs in linear time."
    ),
    "example/match": "A rule matches a call listed in its `examples.no_match`.",
    "example/no-match": "A rule does not match a call listed in its `examples.match`.",
    "reference/unknown-tool": (
        "The file in `schemas` describes no tool of this name. This applies to the file that sets"
        " `schemas` and to files that extend it. Use the names under which calls are checked."
    ),
    "reference/unknown-argument": (
        "According to `schemas`, no tool that this entry covers has an argument of this name."
    ),
    "reference/unmatched-tools": (
        "This matches none of the tools that `schemas` describes. Ignore the finding if the tools"
        " do not exist yet."
    ),
    "pins/malformed": (
        "The lock that `pins` names cannot be used: it is not a lock, or a definition in it does "
        "not have the hash that stands beside it. Write it with `policyguard mcp pin`."
    ),
    "pins/no-lock": (
        "`pins` names a lock that does not exist. Write it with `policyguard mcp pin --server NAME "
        "-- COMMAND...`, which shows a server's tools first."
    ),
    "json/duplicate-key": "An object contains the same key twice. Rename or remove one.",
    "json/syntax": "The file is not valid JSON. The caret shows where parsing failed.",
    "json/too-deep": "JSON files may nest at most 64 levels deep.",
    "json/too-large": "The JSON file contains more values than allowed.",
    "tools/form": (
        "`schemas` names a JSON file: an MCP server's response to `tools/list`, a list of "
        "functions in the form sent to a model, or a list of several of these. Each tool has a "
        "`name`."
    ),
    "tools/incomplete": (
        "The response to `tools/list` has a `nextCursor`, so it is one page of several. With "
        "tools missing, correct names would be reported as misspelt. Fetch the other pages and "
        "put them all in a list: `[page, page]`."
    ),
    "tools/malformed": "The description of a tool's arguments is not a valid JSON Schema.",
    "config/conflict": (
        "A project's settings belong in `.policyguard.toml` or in `pyproject.toml`, not in both."
    ),
    "config/syntax": "The settings file is not valid TOML.",
    "config/unknown-key": "No such setting exists. The help names a similar one, or its table.",
    "config/value": "The setting does not accept this value.",
    "cel/always-present": "`has()` tests a field that is always present.",
    "cel/bad-argument": "The function does not accept this constant argument.",
    "cel/bad-escape": "CEL has no such escape. Raw strings (`r'…'`) process no escapes.",
    "cel/bad-literal": "The literal has no valid value, such as a timestamp out of range.",
    "cel/bad-macro": "A macro takes a plain variable name and an expression.",
    "cel/bad-regex": "RE2 rejects this pattern; the message gives its reason.",
    "cel/invalid-argument": "No call of this function with this argument can succeed.",
    "cel/maybe-absent": (
        "The field may be absent. Reading an absent field is an error, which by default refuses "
        "the call. Test `has(field)` first."
    ),
    "cel/never-equal": "Values of these two types are never equal.",
    "cel/missing-library": (
        "The function needs a library that is not installed. Install the extra that the help names."
    ),
    "cel/no-such-overload": "The operator or function does not accept values of these types.",
    "cel/unsupported": "This version does not support the name. Remove it or upgrade.",
    "cel/not-bool": "A condition must be true or false; this expression is neither.",
    "cel/not-constant": "This argument must be a literal, so that it can be checked at load.",
    "cel/number-range": "The number does not fit in 64 bits.",
    "cel/syntax": "The expression is not valid CEL. The caret shows where parsing failed.",
    "cel/too-deep": "The expression nests deeper than the CEL bounds allow (docs/cel.md).",
    "cel/too-long": "The expression is longer than the CEL bounds allow (docs/cel.md).",
    "cel/undeclared-reference": "No variable or function has this name here.",
    "cel/unknown-field": "The record has no such field. The help names a similar one.",
    "cel/unknown-name": "The policy declares no class, signature or value of this name.",
    "cel/wrong-type": "The expression has the wrong type for this place.",
    "cel/wrong-argument-count": "The function takes a different number of arguments.",
}

_IGNORE_PAGES: dict[str, str] = {
    "lint/ignore-syntax": (
        "To ignore a finding, write `# policyguard: ignore[code] reason` at the end of its line, "
        "or on a line of its own above it. `ignore-file[code]` covers the whole file. Separate "
        "several codes with commas. The reason is required: it tells the next reader why. Errors "
        "that keep a policy from loading cannot be ignored."
    ),
    "lint/unknown-code": (
        "A comment ignores a code that does not exist. The help names the closest code."
    ),
    "lint/unused-ignore": (
        "A comment ignores a finding that does not occur, or no longer occurs. Remove it: it "
        "would hide the next one."
    ),
}

PAGES = {**LOAD_PAGES, **_IGNORE_PAGES, **{rule_code(rule): rule_page(rule) for rule in RULES}}
"""The page of each code that `lint` can report."""

ALL_PAGES = {**PAGES, **JOURNAL_PAGES}
"""Those of `journal verify` too."""

ALIASES = {
    "cel/not-alive": "cel/unsupported",
    "lint/error-lets-through": "lint/fail-open",
    "lint/idle-override": "lint/redundant-override",
    "lint/packs-at-odds": "lint/conflicting-packs",
    "lint/unreachable-step": "lint/unreachable-threshold",
    "reference/idle": "reference/no-effect",
    "schema/not-alive": "schema/unsupported",
}
"""Former codes, accepted wherever a code can be written."""


def canonical_code(code: str) -> str:
    """Return the current name of a code."""
    return ALIASES.get(code, code)


def explain(code: str) -> str | None:
    """Return the page of a code with its heading, or None if the code is unknown."""
    code = canonical_code(code)
    text = ALL_PAGES.get(code)
    return f"{code}\n\n{text}" if text is not None else None


def render_document() -> Iterator[str]:
    """Yield the lines of `docs/diagnostics.md`."""
    yield "# Diagnostics"
    yield ""
    yield "Every code that `policyguard` reports. `policyguard explain CODE` prints one page."
    for name, text in ALL_PAGES.items():
        yield ""
        yield f"## {name}"
        yield ""
        yield text


class UnknownCodeError(PolicyguardError, ValueError):
    """A setting names an unknown code. The message suggests a similar one."""


def is_load_error(found: Diagnostic) -> bool:
    """Return whether a finding keeps the policy from loading. Such findings are always reported."""
    return found.severity == "error" and not found.code.startswith("lint/")


def report_filter(select: Iterable[str], ignore: Iterable[str]) -> Callable[[Diagnostic], bool]:
    """Return a predicate for the findings to report. Raise `UnknownCodeError`.

    Both arguments hold codes (`lint/bare-number`), phases (`lint`) and globs (`lint/unused-*`). An
    empty `select` selects all codes. `ignore` overrides `select`, except for load errors.
    """
    selected, ignored = expand_codes(select), expand_codes(ignore)

    def is_reported(found: Diagnostic) -> bool:
        if is_load_error(found):
            return True
        return found.code not in ignored and (not selected or found.code in selected)

    return is_reported


def expand_codes(names: Iterable[str]) -> frozenset[str]:
    """Return the codes matching codes, phases and globs. Raise `UnknownCodeError`."""
    codes: set[str] = set()
    for name in names:
        matches = compile_glob(name)
        matching = {
            canonical_code(code)
            for code in (*PAGES, *ALIASES)
            if matches(code) or code.partition("/")[0] == name
        }
        if not matching:
            phases = {code.partition("/")[0] for code in PAGES}
            hint = did_you_mean(name, [*phases, *PAGES])
            message = f"unknown code {quote_text(name)}"
            raise UnknownCodeError(f"{message}; {hint}" if hint else message)
        codes |= matching
    return frozenset(codes)

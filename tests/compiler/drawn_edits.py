"""Draws edits of policies: what a slip of the hand, a wrong idea or another layer would change.

An edit takes the lines of a file and returns them changed, or None if there is nothing of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

Pick = Callable[..., Any]
"""Returns one of its arguments, by chance."""
Lines = list[str]
Edit = Callable[[Lines, Pick], Lines | None]

ADDED = (
    *("advise_at: 1", "ask_at: 2", "halt_at: 3", "halt_at: 0", "max: 0", "max: 3", "window: 4"),
    *("window: all", "same: call", "same: result", "same: target", "same: nothing", "by: tool"),
    *("count: tree", "despite_changes: true", "without_news: 2", "per: turn", "per: [session]"),
    *("per: [project, call.args.path]", "per: tags.tier", "per: batch", "refuse: tool"),
    *("until: progress", "until: turn", "until: 2099-01-01", "effect: ask", "effect: halt"),
    *("effect: allow", "effect: redact", "effect: truncate", "keep: 3", "mode: observe"),
    *("mode: enforce", "locked: true", "locked: false", "owner: ann", "reason: because"),
    *("labels: [a, b]", "docs: https://x.example", "severity: high", "on_error: allow"),
    *("on_error: ask", "on_error: set", "tools: [read]", "tools: {outside: [read]}", "tools: []"),
    *('tools: ["*"]', "tools: [read, read]", "tools: [$writers]", "classes: [edit]"),
    *("classes: {outside: [look]}", "classes: [nothing]", "agents: [a]", "servers: [x]"),
    *("commands: ['git push --force|-f']", "commands: {outside: ['ls', 'git *']}"),
    *("commands: ['rm [-r']", "paths: ['/srv/**']", "paths: {outside: [., /tmp]}"),
    *("paths: ['[a]']", "hosts: ['*.x.org']", "hosts: {outside: [x.org, 'y.org:443']}"),
    *("finds: [password]", "finds: ['secret_*', '[0-9]+']", "when: call.args.n > 1"),
    *("when: call.class == 'edit'", "when: outcome.ok", "unless: mark.tested"),
    *("when: call.args.path in mark.seen", "when: params.most > 2", "when: 'true'"),
    *("when: call.tool", "when: session.count('read') > 2", "when: call.tol == 'read'"),
    *("when: call.args.command.runs('git push')", "when: tags.tier == 'gold'"),
    *("message: no {call.args.path} ({session.calls})", "message: '{used} of {limit}'"),
    *("message: '{nothing'", "instead: read it", "otherwise: allow", "otherwise: block"),
    *("cases: [{when: call.args.n == 0, effect: allow}, {effect: advise}]", "cases: []"),
    *("approval: {from: [lead], count: 2, within: 30s, otherwise: allow}", "approval: {count: 0}"),
    *("approval: {remember: [call, tool]}", "examples: {match: [a], no_match: [b]}"),
    *("examples: {block: [{read: {path: a}}], allow: [{x: {}}]}", "within: 30s", "within: 0s"),
    *("reserve: 2", "extend: 3", "calls: 4", "tokens: 5k", "cost: 1.5", "time: 3m"),
    *("concurrent: 2", "sum: call.args.n", "distinct: call.targets", "model_calls: 2"),
    *("cooldown: 2s", "unchanged: 2", "shortest: 2", "longest: 3", "timeout: 5s"),
    *("signature: lost", "blame: harness", "blame: nobody", "on: error", "learn: false"),
    *("key: call.args.path", "key: call.args", "clear: {tools: [edit]}", "set: {tools: [x]}"),
    *("repeat: {max: 2}", "repeat: none", "failures: [{max: 2}, {max: 3, same: error}]"),
    *("polling: {cooldown: 1s}", "cycle: {longest: 2, max: 2}", "outage: none"),
    *("params: {most: 5}", "params: {most: {default: 5, env: MOST, min: 1, max: 10}}"),
    *("lists: {writers: [write, edit, $more]}", "lists: {writers: {add: [b], remove: [edit]}}"),
    *("tags: {tier: string}", "tags: {tier: {one_of: [gold, vip], default: vip}}"),
    *("patterns: {password: 'pw-[0-9]{3}'}", "patterns: {secret_a: {match: 'a(', examples: {}}}"),
    *("marks: {tested: {set: {tools: [test], when: outcome.ok}, per: turn}}", "extends: [core2]"),
    *("extends: [base.yaml]", "extends: [nowhere.yaml]", "extends: policy.yaml", "extends: []"),
    *("extends: [sentinel, loop-brake]", "disable: {rules/r0: no}", "disable: {repeat: no}"),
    *("disable: {limits/default/failures: no, nothing: no}", "batch: all_or_none", "name: x"),
    *("on_internal_error: allow", "bounds: {in_flight: 2, sessions: 10}", "bounds: {plans: -1}"),
    *("outcomes: {failed_when: outcome.exit_code != 0}", "schemas: tools.json", "pins: {}"),
    *("outcomes: {envelope: [{state: pending, pattern: ^wait}], meta: {harness: [infra]}}"),
    *("learn: {corroborate: 2, ban: target, weaken: {half_life: 20s}}", "learn: {ban: none}"),
    *("radius: {schedule: [3, 1], shrink_after: 1, widen_after: 2}", "radius: []"),
    *("progress: {plateau_after: 2, space: 3}", "journal: {arguments: masked}"),
    *("exceptions: {e: {rules: ['*'], until: 2099-01-01, reason: r}}", "blame: []"),
    *("classify: {targets: [path], state_changing: call.tool == 'edit'}", "weaken: {lives: 60s}"),
    *("likeness: {results: {mask: [durations]}}", "fingerprint: {ignore: [n], tolerance: {n: 1}}"),
    *("shell: {arguments: [command], programs: {mytool: {read_only: [list]}}}", "scope: project"),
    *("approvals: {from: [lead]}", "result_rules: {hide: {effect: redact, finds: [password]}}"),
)
"""What is added to a map, where it may or may not belong."""
VALUES = (
    *("[]", "{}", "null", "~", "true", "'text'", "3", "-1", "1.5", '""', "[a, b]", "{a: 1}"),
    *("2099-01-01", "!!str 3", "yes", "017", "0x1F", ".inf", "1e400", "*a", "&a x", "a: b"),
    *("$most", "$writers", "$nothing", "'{call.tool}'", "5m", "5 m", "500k", "10%", "none", "all"),
    *("[[a]]", "[{a: 1}]", "|", ">", "'unclosed", "[a", "{a: 1", "@x", "`x`", "?", "- a", "call"),
)
NUMBERS = ("0", "1", "2", "-1", "7", "0.5", "1000000", "99999999999999999999", "0s", "1ms", "400d")
TEXTS = ("x" * 70, "long " * 80, "a|" * 3000, "é中\U0001f431", "\\", "(", "[a-", "{x}", "{", "call")
SIGNS = ("\t", "\0", "\u2028", "é", "\U0001f431", "#", ":", '"', "'", "{", "]", ",", "-", "\\", "$")
OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "&&", "||", " in ", "+", "=", "and", "!", ".", "%")
FIELDS = (
    *("tool", "class", "classes", "args", "args.path", "args.missing", "previous", "targets"),
    *("text", "hints.readOnlyHint", "tags.tier", "calls", "cost", "elapsed", "progress", "turn"),
    *("ok", "error", "data", "duration", "score", "signature", "blame", "changed", "most", "seen"),
)
ITEMS = ("x", "read", "$nothing", "$writers", "'*'", "'@spawn'", "3", "[a]", "{a: 1}", "''", "a-b")

_KEY = re.compile(r"(?:^|(?<=[{,]))[\s-]*\"?([\w*@./-]+)\"?:(?=\s|$)")
_NUMBER = re.compile(r"(?<![\w.'-])\d+(?:\.\d+)?(?:ms|[smhdkM])?(?![\w.-])")
_PAIR = re.compile(
    r"([\w*@./-]+): ([^\s,{}\[\]#'\"|>&][^,{}\[\]#]*|'[^']*'|\"[^\"]*\"|\[[^\[\]]*\])"
)
_OPERATOR = re.compile(r"[=!<>]=|&&|\|\|| in |(?<= )[<>+*/%-](?= )|!(?=\w)")
_FIELD = re.compile(r"\b(call|session|outcome|tags|mark|params|lists|now)\.([a-z_.]+)\b(?!\()")
_LIST = re.compile(r"\[([^\[\]]+)\]")
_MAP = re.compile(r"\{([^{}]+: [^{}]*)\}")


def draw_edit(text: str, pick: Pick, edits: Sequence[Edit]) -> tuple[str, str]:
    """Return the text with one of the edits, and the edit's name."""
    while True:
        edit = pick(*edits)
        lines = edit(text.split("\n"), pick)
        if lines is not None and (changed := "\n".join(lines)) != text:
            return changed, edit.__name__.replace("_", " ")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _pick_line(lines: Lines, pick: Pick) -> int:
    return pick(*[n for n, line in enumerate(lines) if line.strip()] or [0])


def _block_end(lines: Lines, start: int) -> int:
    """Return where the block ends that begins in a line: with what is deeper."""
    end = start + 1
    while end < len(lines) and (
        not lines[end].strip() or _indent(lines[end]) > _indent(lines[start])
    ):
        end += 1
    return end


def _replace_match(
    lines: Lines, pick: Pick, pattern: re.Pattern[str], make: Callable[[str], str]
) -> Lines | None:
    """Replace one of the places where a pattern matches, or its last group."""
    found = [
        (n, match)
        for n, line in enumerate(lines)
        if not line.lstrip().startswith("#")
        for match in pattern.finditer(line)
    ]
    if not found:
        return None
    n, match = pick(*found)
    group = pattern.groups
    start, end = match.span(group)
    new = make(match[group])
    return [*lines[:n], lines[n][:start] + new + lines[n][end:], *lines[n + 1 :]]


def drop_line(lines: Lines, pick: Pick) -> Lines | None:
    n = _pick_line(lines, pick)
    return [*lines[:n], *lines[n + 1 :]]


def drop_block(lines: Lines, pick: Pick) -> Lines | None:
    n = _pick_line(lines, pick)
    return [*lines[:n], *lines[_block_end(lines, n) :]]


def repeat_block(lines: Lines, pick: Pick) -> Lines | None:
    n = _pick_line(lines, pick)
    end = _block_end(lines, n)
    return [*lines[:end], *lines[n:end], *lines[end:]]


def copy_block(lines: Lines, pick: Pick) -> Lines | None:
    """Add a block once more, under another id."""
    n = _pick_line(lines, pick)
    end = _block_end(lines, n)
    pattern = r"(id: [\w-]+)" if "id: " in lines[n] else r"(class: [\w-]+|^[\s-]*[\w*@./-]+)"
    first = re.sub(pattern, r"\g<1>2", lines[n], count=1)
    return [*lines[:end], first, *lines[n + 1 : end], *lines[end:]]


def move_block(lines: Lines, pick: Pick) -> Lines | None:
    n = _pick_line(lines, pick)
    end = _block_end(lines, n)
    block, rest = lines[n:end], [*lines[:n], *lines[end:]]
    level = _indent(block[0])
    places = [m for m, line in enumerate(rest) if line.strip() and _indent(line) == level]
    m = pick(*places or [0])
    return [*rest[:m], *block, *rest[m:]]


def move_block_into_another(lines: Lines, pick: Pick) -> Lines | None:
    n = _pick_line(lines, pick)
    end = _block_end(lines, n)
    block, rest = lines[n:end], [*lines[:n], *lines[end:]]
    if not rest:
        return None
    m = _pick_line(rest, pick)
    shift = _indent(rest[m]) - _indent(block[0])
    moved = [" " * max(0, _indent(line) + shift) + line.lstrip(" ") for line in block]
    return [*rest[:m], *moved, *rest[m:]]


def misspell_key(lines: Lines, pick: Pick) -> Lines | None:
    def misspell(key: str) -> str:
        at = pick(*range(len(key)))
        swapped = key[:at] + key[at + 1 : at + 2] + key[at] + key[at + 2 :]
        return pick(key[:at] + key[at + 1 :], key[:at] + key[at] + key[at:], swapped, key.upper())

    return _replace_match(lines, pick, _KEY, misspell)


def replace_key(lines: Lines, pick: Pick) -> Lines | None:
    return _replace_match(lines, pick, _KEY, lambda _: pick(*ADDED).partition(":")[0])


def replace_number(lines: Lines, pick: Pick) -> Lines | None:
    return _replace_match(lines, pick, _NUMBER, lambda _: pick(*NUMBERS))


def replace_value(lines: Lines, pick: Pick) -> Lines | None:
    return _replace_match(lines, pick, _PAIR, lambda _: pick(*VALUES))


def replace_pair(lines: Lines, pick: Pick) -> Lines | None:
    found = _replace_match(lines, pick, re.compile(f"({_PAIR.pattern[1:]}"), lambda _: "\0")
    return found and [re.sub(r"[\w*@./-]+: \0", lambda _: pick(*ADDED), line) for line in found]


def swap_values(lines: Lines, pick: Pick) -> Lines | None:
    text = "\n".join(lines)
    found = [*_PAIR.finditer(text)]
    if len(found) < 2:
        return None
    one, other = sorted((pick(*found), pick(*found)), key=lambda match: match.start())
    if one is other:
        return None
    (a, b), (c, d) = one.span(2), other.span(2)
    return (text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]).split("\n")


def drop_character(lines: Lines, pick: Pick) -> Lines | None:
    n = _pick_line(lines, pick)
    places = [at for at, sign in enumerate(lines[n]) if sign != " "]
    if not places:
        return None
    at = pick(*places)
    return [*lines[:n], lines[n][:at] + lines[n][at + 1 :], *lines[n + 1 :]]


def add_character(lines: Lines, pick: Pick) -> Lines | None:
    n = _pick_line(lines, pick)
    at = pick(*range(len(lines[n]) + 1))
    return [*lines[:n], lines[n][:at] + pick(*SIGNS) + lines[n][at:], *lines[n + 1 :]]


def change_operator(lines: Lines, pick: Pick) -> Lines | None:
    return _replace_match(lines, pick, _OPERATOR, lambda _: pick(*OPERATORS))


def change_field(lines: Lines, pick: Pick) -> Lines | None:
    return _replace_match(lines, pick, _FIELD, lambda name: pick(name[:-1], name + "s", *FIELDS))


def add_pair(lines: Lines, pick: Pick) -> Lines | None:
    n = _pick_line(lines, pick)
    line = lines[n]
    shift = pick(0, 0, 0, 2) if line.lstrip().startswith("- ") else 0
    before = 0 if line.lstrip().startswith("- ") else pick(0, 1)
    added = " " * (_indent(line) + shift) + pick(*ADDED)
    return [*lines[: n + 1 - before], added, *lines[n + 1 - before :]]


def add_pair_in_braces(lines: Lines, pick: Pick) -> Lines | None:
    return _replace_match(lines, pick, _MAP, lambda inner: f"{inner}, {pick(*ADDED)}")


def add_section(lines: Lines, pick: Pick) -> Lines | None:
    return [*lines[:-1], pick(*[pair for pair in ADDED if "{" in pair]), lines[-1]]


def drop_pair_in_braces(lines: Lines, pick: Pick) -> Lines | None:
    def drop(inner: str) -> str:
        pairs = inner.split(", ")
        at = pick(*range(len(pairs)))
        return ", ".join(pairs[:at] + pairs[at + 1 :])

    return _replace_match(lines, pick, _MAP, drop)


def add_item(lines: Lines, pick: Pick) -> Lines | None:
    def add(inner: str) -> str:
        items = inner.split(", ")
        at = pick(*range(len(items)))
        return ", ".join([*items[:at], pick(items[0], *ITEMS), *items[at:]])

    return _replace_match(lines, pick, _LIST, add)


def drop_item(lines: Lines, pick: Pick) -> Lines | None:
    def drop(inner: str) -> str:
        items = inner.split(", ")
        at = pick(*range(len(items)))
        return ", ".join(items[:at] + items[at + 1 :])

    return _replace_match(lines, pick, _LIST, drop)


def drop_examples(lines: Lines, pick: Pick) -> Lines | None:
    return _replace_match(lines, pick, re.compile(r"(,? ?examples: \{[^{}]*\})"), lambda _: "")


def change_indentation(lines: Lines, pick: Pick) -> Lines | None:
    n = _pick_line(lines, pick)
    line = pick(" " + lines[n], lines[n].removeprefix(" "), "\t" + lines[n], "  " + lines[n])
    return [*lines[:n], line, *lines[n + 1 :]]


def add_anchor(lines: Lines, pick: Pick) -> Lines | None:
    anchored = _replace_match(lines, pick, _PAIR, lambda value: f"&a {value}")
    return anchored and _replace_match(anchored, pick, _PAIR, lambda _: pick("*a", "*b"))


def replace_text(lines: Lines, pick: Pick) -> Lines | None:
    return _replace_match(lines, pick, _PAIR, lambda _: f"'{pick(*TEXTS)}'")


def change_lines(lines: Lines, pick: Pick) -> Lines | None:
    """Change what lines and documents end with."""
    n = _pick_line(lines, pick)
    sign = pick("\r", "---", "...", "\ufeff", "? x", "<<: {a: 1}", "# policyguard: ignore[*]")
    if sign == "\r":
        return [line + sign for line in lines[:-1]] + lines[-1:]
    return [sign + lines[0], *lines[1:]] if sign == "\ufeff" else [*lines[:n], sign, *lines[n:]]


EDITS: tuple[Edit, ...] = (
    *(drop_line, drop_block, repeat_block, copy_block, copy_block, move_block),
    *(move_block_into_another, misspell_key, misspell_key, replace_key, replace_number),
    *(replace_number, replace_number, replace_value, replace_value, replace_pair, swap_values),
    *(drop_character, add_character, change_operator, change_operator, change_field, change_field),
    *(add_pair, add_pair, add_pair, add_pair_in_braces, add_pair_in_braces, add_pair_in_braces),
    *(add_section, add_section, add_section, drop_pair_in_braces, add_item, drop_item),
    *(drop_examples, change_indentation, add_anchor, replace_text, change_lines),
)
GENTLE_EDITS: tuple[Edit, ...] = (
    *(replace_number, replace_number, add_item, drop_item, drop_item, change_operator, drop_block),
    *(change_field, change_field, copy_block, move_block, swap_values, add_pair, drop_line),
)
"""Those after which more policies are valid."""

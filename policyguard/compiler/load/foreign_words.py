"""What authors write who know other tools, and what it is called here."""

from __future__ import annotations

import re
from collections.abc import Collection

from policyguard.engines.yaml_tree import Node, ScalarNode
from policyguard.model.diagnostic import quote_text

_KEYS = {
    "action": ("effect",),
    "arguments": ("when",),
    "condition": ("when",),
    "conditions": ("when",),
    "decision": ("effect",),
    "duration": ("within",),
    "every": ("within",),
    "exclude": ("unless",),
    "expression": ("when",),
    "if": ("when",),
    "interval": ("within",),
    "limit": ("calls", "max"),
    "max_calls": ("calls",),
    "max_cost": ("cost",),
    "max_retries": ("failures",),
    "max_tokens": ("tokens",),
    "maximum": ("calls", "max"),
    "error": ("message",),
    "period": ("within",),
    "reason": ("message",),
    "retries": ("failures",),
    "scope": ("per",),
    "then": ("effect",),
    "threshold": ("max",),
    "usd": ("cost",),
    "version": ("policyguard",),
    "window": ("within",),
}
"""Keys of other tools, each with the keys here that may be meant, the first that fits."""
_HINTS = {
    "disabled": "remove the entry, or switch an inherited one off under `disable`",
    "enabled": "remove the entry, or switch an inherited one off under `disable`",
    "match": "write what it matches beside `effect`: `tools: […]`, `when: …`",
    "priority": "there are no priorities: the strongest effect of all entries that match wins",
    "selector": "write what it selects beside `effect`: `tools: […]`, `when: …`",
    "unit": "the key says the unit: `calls`, `tokens`, `cost` or `time`",
}
_VALUES = {
    "effect": {
        "abort": "halt",
        "approval": "ask",
        "approve": "ask",
        "confirm": "ask",
        "deny": "block",
        "disallow": "block",
        "escalate": "ask",
        "forbid": "block",
        "log": "advise",
        "refuse": "block",
        "reject": "block",
        "require_approval": "ask",
        "review": "ask",
        "stop": "halt",
        "terminate": "halt",
        "warn": "advise",
    },
    "mode": {
        "audit": "observe",
        "dry_run": "observe",
        "enabled": "enforce",
        "log": "observe",
        "monitor": "observe",
        "off": "observe",
        "report_only": "observe",
        "shadow": "observe",
        "test": "observe",
    },
}
_TIMES = {"second": "1s", "minute": "1m", "hour": "1h", "day": "1d", "week": "7d", "month": "30d"}
_WORKAROUNDS = {
    "commands": "until then `when: call.command.contains('…')` catches accidents, not intent",
    "exceptions": "until then write `unless: …` in the entry",
    "finds": "until then use `when: call.strings.exists(s, s.matches('…'))`",
    "hosts": "until then use `when: \"!call.args.url.host_in(['…'])\"`",
    "locked": "until then `lint` reports what a layer weakens",
    "marks": "until then the host can set a tag, which conditions read as `tags.…`",
    "paths": "until then use `when: \"call.targets.exists(t, t.inside('…'))\"`",
    "result_rules": "until then the host must filter results",
}
"""What to write instead of what is not implemented yet."""
_TAKE_LISTS = ("agents", "classes", "outside", "servers", "tools")
"""Selectors, into which a named list is inserted by `$name`."""
_MAX_SHOWN_CHARS = 60


def explain_key(key: str, known: Collection[str], value: Node | None) -> str | None:
    """Return what to write for another tool's key, among keys that are `known` in its place."""
    folded = key.casefold().replace("-", "_")
    meant = next((one for one in _KEYS.get(folded, ()) if one in known), None)
    if meant is not None:
        return f"write `{meant}{_show_value(meant, value)}`"
    return _HINTS.get(folded) if "effect" in known or "calls" in known else None


def _show_value(meant: str, value: Node | None) -> str:
    """Return the author's own value after a key, where it is short."""
    if not isinstance(value, ScalarNode) or not 0 < len(value.text) <= _MAX_SHOWN_CHARS:
        return ""
    text = value.source.text[value.start : value.end]
    if meant == "effect":
        text = find_value(value.text, "effect") or text
    elif meant == "failures":
        text = f"{{max: {text}}}"
    return f": {text}" if "\n" not in text and "`" not in text else ""


def find_value(value: str, key: str) -> str | None:
    """Return the value that another tool's word means, under a key."""
    return _VALUES.get(key, {}).get(re.sub(r"[\s-]+", "_", value.casefold()))


def explain_value(value: str, key: str, known: Collection[str]) -> str | None:
    """Return what to write for another tool's word under a key whose values are `known`."""
    if key == "per" and (time := _TIMES.get(value.casefold().removesuffix("s"))):
        return f"for a time write `within: {time}`; `per` says whose calls count"
    kind = "effect" if "advise" in known else "mode" if "observe" in known else key
    if kind == "effect" and value == "allow":
        return "calls are allowed unless refused: remove the entry, or exempt calls with `unless`"
    meant = find_value(value, kind)
    return f"did you mean `{meant}`?" if meant in known else None


def explain_unsupported(key: str) -> str:
    """Return what to do about a key that is not implemented yet."""
    return _WORKAROUNDS.get(key, "remove it, or upgrade to a version that supports it")


def explain_list(value: str, source: str, key: str | int) -> str:
    """Return how to write a key's single value, as `source` has it, as a list."""
    if source[:1] not in "\"'" and not re.fullmatch(r"[\w.$/-][\w.$/?*-]*", source):
        source = f'"{value}"'
    hint = f"write {quote_text(f'[{source}]')}"
    if key in _TAKE_LISTS and re.fullmatch(r"[A-Za-z_]\w*", value):
        hint += f", or `[${value}]` for the items of `lists.{value}`"
    return hint

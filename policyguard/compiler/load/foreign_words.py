"""What authors write who know other tools, and what it is called here."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from policyguard.compiler.load.scalars import parse_duration
from policyguard.compiler.load.shape_hints import MAX_SHOWN_CHARS, display_name
from policyguard.engines.yaml_tree import Node, ScalarNode
from policyguard.model.diagnostic import quote_text
from policyguard.model.effect import Effect

_KEYS = {
    "action": ("effect",),
    "allowed": ("no_match",),
    "allows": ("no_match",),
    "arguments": ("when",),
    "blocked": ("match",),
    "blocks": ("match",),
    "comment": ("reason",),
    "condition": ("when",),
    "conditions": ("when",),
    "decision": ("effect",),
    "description": ("reason",),
    "default": ("otherwise",),
    "domains": ("hosts",),
    "duration": ("within",),
    "else": ("otherwise",),
    "fallback": ("otherwise",),
    "every": ("within",),
    "except": ("outside", "unless"),
    "exclude": ("outside", "unless"),
    "exit": ("exit_code",),
    "expires": ("until",),
    "files": ("paths",),
    "exit_status": ("exit_code",),
    "expression": ("when",),
    "if": ("when",),
    "interval": ("within",),
    "limit": ("calls", "max"),
    "max_calls": ("calls", "max"),
    "max_cost": ("cost",),
    "max_retries": ("failures",),
    "max_tokens": ("tokens",),
    "max_count": ("max",),
    "maximum": ("calls", "max"),
    "name": ("id", "class"),
    "not": ("outside",),
    "output": ("text",),
    "error": ("message",),
    "period": ("within",),
    "reason": ("message",),
    "regex": ("pattern",),
    "reset": ("clear",),
    "retries": ("failures",),
    "returncode": ("exit_code",),
    "scope": ("per",),
    "stderr": ("error",),
    "stdout": ("text",),
    "success": ("ok",),
    "then": ("effect",),
    "threshold": ("max",),
    "ttl": ("within",),
    "unset": ("clear",),
    "urls": ("hosts",),
    "usd": ("cost",),
    "value": ("default",),
    "values": ("one_of",),
    "version": ("policyguard",),
    "window": ("within",),
}
"""Keys of other tools, each with the keys here that may be meant, the first that fits."""
_HINTS = {
    **dict.fromkeys(
        ("approved_by", "approver", "approvers"), "write `effect: ask` and `approval: {from: […]}`"
    ),
    **dict.fromkeys(
        ("except_tools", "exclude_tools", "excluded_tools"), "write `tools: {outside: […]}`"
    ),
    "expires": "write it in a condition: `now < timestamp('2026-01-31T00:00:00Z')`",
    **dict.fromkeys(
        ("redact", "redaction", "truncate", "withhold"),
        "results are edited by `result_rules`: `name: {tools: […], effect: redact, …}`",
    ),
    "disabled": "remove the entry, or switch an inherited one off under `disable`",
    "enabled": "remove the entry, or switch an inherited one off under `disable`",
    "match": "write what it matches beside `effect`: `tools: […]`, `when: …`",
    **dict.fromkeys(
        ("event", "on", "trigger"),
        "omit it: `rules` are asked before each call, and `result_rules` before each result",
    ),
    "priority": "there are no priorities: the strongest effect of all entries that match wins",
    "selector": "write what it selects beside `effect`: `tools: […]`, `when: …`",
    "unit": "the key says the unit: `calls`, `tokens`, `cost` or `time`",
}
_VALUES = {
    "blame": {
        **dict.fromkeys(("caller", "llm", "model", "user"), "agent"),
        **dict.fromkeys(
            ("environment", "infra", "infrastructure", "server", "system", "tool"), "harness"
        ),
        "none": "unknown",
    },
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
        "warn": "observe",
    },
    "per": {
        **dict.fromkeys(("conversation", "run", "task", "thread"), "session"),
        **dict.fromkeys(("message", "request", "step"), "turn"),
        **dict.fromkeys(("all", "everyone", "total"), "global"),
    },
}
_CALL_BUDGET = "write a budget: `budgets: {name: {tools: […], calls: 20, within: 1h}}`"
_TOP_HINTS = {
    **dict.fromkeys(
        ("allow", "allowed", "allowlist", "whitelist"),
        "calls are allowed unless refused; to allow only some tools, write a rule with "
        "`tools: {outside: […]}`",
    ),
    **dict.fromkeys(
        ("block", "blocked", "blocklist", "denied", "deny", "denylist"),
        "write a rule: `rules: {name: {tools: […], effect: block}}`",
    ),
    **dict.fromkeys(
        ("default", "default_action", "default_effect"),
        "there is no default effect: a call that nothing refuses runs; to refuse all but some "
        "tools, write a rule with `tools: {outside: […]}`",
    ),
    **dict.fromkeys(
        ("grant", "grants", "permissions"),
        "a person grants what a rule with `effect: ask` asks for: see `policyguard grants --help`",
    ),
    **dict.fromkeys(
        ("redact", "redaction"),
        'results are edited by `result_rules`: `name: {finds: ["secret_*"], effect: redact}`; what '
        "the journal keeps of them, by `journal: {redact: […]}`",
    ),
    **dict.fromkeys(
        ("stage", "stages", "steps", "workflow"),
        "a stage is a mark: `marks: {tested: {set: {commands: [pytest]}}}`, and a rule with "
        "`unless: mark.tested`",
    ),
    **dict.fromkeys(
        ("max_calls", "quota", "quotas", "rate_limit", "rate_limits", "throttle"), _CALL_BUDGET
    ),
    "tools": "name tools in a rule or a budget: `rules: {name: {tools: […], when: …}}`",
}
"""What to write instead of sections of other tools."""
_NO_ALLOW = "calls are allowed unless refused: remove the entry, or exempt calls with `unless`"
_RESULT_EFFECTS = ("redact", "truncate", "withhold")
_PER_KEYS = {"tool": "call.tool", "server": "call.server", "class": "call.class"}
_TIMES = {"second": "1s", "minute": "1m", "hour": "1h", "day": "1d", "week": "7d", "month": "30d"}
_CALL_KEYS = {
    "tool": ("tool", "tool_name", "name", "function"),
    "args": ("args", "arguments", "input", "parameters", "params"),
}
"""Keys of a call in other tools, which here is `tool: {arguments}`."""
_POLICY_KEYS = ("budgets", "classify", "extends", "learn", "limits", "outcomes", "rules")
_TIME_KEYS = ("duration", "every", "interval", "period", "within")
_TOTALS = ("calls", "limit", "max_calls", "rate", "rate_limit", "total")
"""What a limit cannot cap, as keys in the place of a kind."""
_IN_CALLS = "`window` counts calls; for a time use a budget: `{calls: 3, within: 5m}`"
_TAKE_LISTS = ("agents", "classes", "commands", "hosts", "outside", "paths", "servers", "tools")
"""Selectors, into which a named list is inserted by `$name`."""
_SURE = 0.7
"""How alike a key of a step and a known one are that is not a tool's name, from 0 to 1."""
_NAME = re.compile(r"[\w.-][\w.*-]*")


def explain_key(key: str, known: Collection[str], value: Node | None) -> str | None:
    """Return what to write for another tool's key, among keys that are `known` in its place."""
    folded = key.casefold().replace("-", "_")
    meant = next((one for one in _KEYS.get(folded, ()) if one in known), None)
    if meant is not None:
        return f"write `{meant}{_show_value(meant, value)}`"
    if "returns" in known:  # a step of a test
        return _explain_step_key(folded, known, value)
    if "environ" in known and folded in _POLICY_KEYS:
        return "it belongs in the policy, in the file that `policy` names"
    if list(known) == ["outside"]:
        return "write what is selected as a list in its place: `[…]`; `outside` selects all else"
    if "extends" in known and folded in ("test", "tests"):
        return "tests are a file beside the policy, such as `tests.yaml`, with `policy` and `tests`"
    if "extends" in known and folded in _TOP_HINTS:
        return _TOP_HINTS[folded]
    if folded in _TIME_KEYS and "window" in known:
        return _IN_CALLS
    if "repeat" in known and folded in _TOTALS:
        return _CALL_BUDGET
    if "repeat" in known and folded == "max":
        return f"name the kind of limit: `repeat: {{max{_show_value('max', value)}}}`"
    if "effect" in known and (effect := _find_effect(folded)):
        return _explain_effect(effect, known, value)
    return _HINTS.get(folded) if "effect" in known or "calls" in known else None


def _find_effect(word: str) -> str | None:
    return word if word in set(Effect) else find_value(word, "effect")


def _explain_effect(effect: str, known: Collection[str], value: Node | None) -> str:
    """Return what to write for an effect in the place of a key, whose value is often a message."""
    if effect == Effect.ALLOW and "cases" in known:
        return _NO_ALLOW
    text = "message" in known and isinstance(value, ScalarNode) and isinstance(value.value, str)
    message = _show_value("message", value) if text else ""
    return f"write `effect: {effect}`" + (f" and `message{message}`" if message else "")


def _explain_step_key(key: str, known: Collection[str], value: Node | None) -> str | None:
    from difflib import get_close_matches

    if key in _CALL_KEYS["tool"] and isinstance(value, ScalarNode):
        return f"write {explain_call({'tool': value.value, 'args': {}})}"
    if key in _CALL_KEYS["args"]:
        return "put the arguments under the tool's name: `call: {tool: {…}}`"
    if key in _KEYS or get_close_matches(key, known, cutoff=_SURE):
        return None
    return f"for a call write {quote_text(f'call: {{{key}: …}}')}"


def explain_call(value: Mapping[str, object], key: str | int = "call") -> str | None:
    """Return how to write a call of which tool and arguments are keys; None for anything else.

    `key` is the key under which it stands, if that is one.
    """
    tool = next((value[name] for name in _CALL_KEYS["tool"] if name in value), None)
    if not isinstance(tool, str) or not any(name in value for name in _CALL_KEYS["args"]):
        return None
    written = f"{{{display_name(tool, 'tool')}: {{…}}}}"
    return quote_text(f"{key}: {written}" if isinstance(key, str) else written)


def explain_time(value: str, key: str | int) -> str | None:
    """Return what to write for a duration in place of a number of calls."""
    return _IN_CALLS if key == "window" and parse_duration(value) is not None else None


def explain_single_key(value: object, known: Collection[str]) -> str | None:
    """Return the one value of a map or list that could stand in its place."""
    inside = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(inside, list) or not inside or not known:
        return None
    if len(inside) == 1:
        return f"write `{inside[0]}`" if inside[0] in known else None
    return "write one of them" if all(item in known for item in inside) else None


def _show_value(meant: str, value: Node | None) -> str:
    """Return the author's own value after a key, where it is short."""
    if not isinstance(value, ScalarNode) or not 0 < len(value.text) <= MAX_SHOWN_CHARS:
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
    if {"turn", "global"} <= {*known} and (value in _PER_KEYS or "." in value):
        by_key = f"per: [session, {_PER_KEYS.get(value, value)}]"
        return f"for a key write a list: {quote_text(by_key)}"
    if key == "effect" and value in _RESULT_EFFECTS and value not in known:
        return f"`{value}` is for results: move the entry to `result_rules`"
    kind = "effect" if "advise" in known else "mode" if "observe" in known else key
    if kind == "effect" and value == "allow":
        return _NO_ALLOW
    meant = find_value(value, kind)
    return f"did you mean `{meant}`?" if meant in known else None


def explain_list(value: str, source: str, key: str | int) -> str:
    """Return how to write a key's single value, as `source` has it, as a list."""
    names = re.split(r"\s*[|,]\s*", value)
    if key in (*_TAKE_LISTS, "extends") and len(names) > 1 and all(map(_NAME.fullmatch, names)):
        return f"write {quote_text('[' + ', '.join(names) + ']')}"
    if source[:1] not in "\"'" and not re.fullmatch(r"[\w.$/-][\w.$/?*-]*", source):
        source = f'"{value}"'
    hint = f"write {quote_text(f'[{source}]')}"
    if key in _TAKE_LISTS and re.fullmatch(r"[A-Za-z_]\w*", value):
        hint += f", or `[${value}]` for the items of `lists.{value}`"
    return hint

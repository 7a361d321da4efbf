"""Build the typed policy from the merged tree: fill in defaults, expand short forms.

Defaults come from the schema, except those that depend on other values (`on_error` on the rule's
effect).
"""

from __future__ import annotations

from typing import Any

import msgspec

from policyguard.compiler.load import scalars, schema
from policyguard.engines.yaml_tree import MappingNode, to_plain
from policyguard.model.effect import Effect
from policyguard.model.policy import Policy, Value

_BY_ID = ("budgets", "rules", "marks", "result_rules", "exceptions")
_METADATA = ("owner", "severity", "docs", "labels", "reason", "mode", "locked")


def build_typed_policy(tree: MappingNode, params: dict[str, Value], digest: str) -> Policy:
    """Build the policy from a valid tree and the values of its params."""
    policy = _normalize(to_plain(tree), schema.document(), fill=True)
    for key in ("policyguard", "extends", "disable"):
        policy.pop(key, None)
    policy.setdefault("name", "")
    for section in _BY_ID:
        policy[section] = [{"id": name, **entry} for name, entry in _section_items(policy, section)]
    policy["params"] = {
        name: _normalize_param(entry, params[name])
        for name, entry in _section_items(policy, "params")
        if name in params
    }
    policy["lists"] = {
        name: items for name, items in _section_items(policy, "lists") if isinstance(items, list)
    }
    for section, key in (("tags", "type"), ("patterns", "match")):
        policy[section] = {
            name: {key: entry} if isinstance(entry, str) else entry
            for name, entry in _section_items(policy, section)
        }
    policy["limits"] = _flatten_levels(policy.get("limits", {}))
    radius = policy.get("radius", [])
    policy["radius"] = radius if isinstance(radius, list) else [radius]
    for rule in policy["rules"]:
        _fill_effects(rule)
    return msgspec.convert({**policy, "digest": digest}, Policy)


def _fill_effects(rule: dict[str, Any]) -> None:
    """Fill in the effects of a rule and its cases that depend on others."""
    cases = rule.get("cases", [])
    if cases:
        effects = [Effect(case["effect"]) for case in cases]
        effects.append(Effect(rule.get("otherwise", "allow")))
        rule["effect"] = max(effects).value
    for one in [*cases, rule]:
        effect = "block" if one["effect"] == "halt" else one["effect"]
        one.setdefault("on_error", rule.get("on_error", effect))


def _normalize(value: Any, around: schema.Subschema, *, fill: bool) -> Any:
    shape = schema.resolve_for(around, value)
    fill = fill and shape.get("x-defaults", True)
    normal: Any = value
    if isinstance(value, dict):
        normal = {
            key: _normalize(child, schema.child_schema(shape, key), fill=fill)
            for key, child in value.items()
        }
        if fill:
            normal |= _defaults(value, shape)
    elif isinstance(value, list):
        normal = [
            _normalize(item, schema.child_schema(shape, index), fill=fill)
            for index, item in enumerate(value)
        ]
    return _normalize_scalar(normal, shape.get("x-scalar", ""))


def _defaults(value: dict[str, Any], shape: schema.Subschema) -> dict[str, Any]:
    filled = {}
    for key, child in shape.get("properties", {}).items():
        resolved = schema.resolve_ref(child)
        if key not in value and "default" in resolved:
            filled[key] = _normalize(resolved["default"], child, fill=True)
    return filled


def _normalize_scalar(value: Any, reads: str) -> Any:
    """Return a value in the form of the model."""
    match reads:
        case "duration":
            return scalars.parse_duration(value)
        case "count" | "number":
            return scalars.normalize_number(value)
        case "amount":
            found = scalars.parse_duration(value) if isinstance(value, str) else None
            return scalars.normalize_number(value) if found is None else found
        case "selector":
            if isinstance(value, list):
                return {"items": value}
            return {"items": value["outside"], "outside": True}
        case "per":
            scope, *keys = value if isinstance(value, list) else [value]
            return {"scope": scope, "keys": keys}
        case "example":
            return _normalize_example(value)
    return value


def _normalize_example(value: dict[str, Any]) -> dict[str, Any]:
    rest = dict(value)
    ((tool, arguments),) = rest.pop("call").items() if "call" in value else value.items()
    if "call" not in value:
        rest = {}
    return {"tool": tool, "command" if isinstance(arguments, str) else "args": arguments, **rest}


def _normalize_param(entry: Any, value: Value) -> dict[str, Any]:
    settings = entry if isinstance(entry, dict) else {}
    kept = {key: settings[key] for key in ("env", "unit", *_METADATA) if key in settings}
    bounds = {
        key: _normalize_scalar(settings[key], "amount") for key in ("min", "max") if key in settings
    }
    return {"value": value, **kept, **bounds}


def _flatten_levels(limits: dict[str, Any]) -> dict[str, Any]:
    levels = {"default": limits["default"]} if "default" in limits else {}
    for group in ("classes", "tools"):
        for name, level in limits.get(group, {}).items():
            levels[f"{group}:{name}"] = level
    return levels


def _section_items(policy: dict[str, Any], section: str) -> list[tuple[str, Any]]:
    return list(policy.get(section, {}).items())

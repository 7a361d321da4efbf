"""A layer that takes strength from another one.

`mode: observe` and `on_internal_error: allow` of an inherited file hold for the whole policy: no
entry of its own refuses a call. And a layer may loosen what an inherited file of yours sets: switch
it to observe, give it a weaker effect, raise its limit. Each may be meant; none should go unseen.
Tuning the packs that come with policyguard is not reported.

Avoid:

    # base.yaml has `mode: observe`
    extends: [base.yaml]
    rules: {no-drop: {tools: [drop_*], effect: block}}

Prefer to say the mode where the rules are, and to loosen a limit with a reason:

    extends: [base.yaml]
    mode: enforce
    budgets:
      mails: {calls: 50}   # policyguard: ignore[lint/weakened-by-a-layer] newsletters
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.compiler.load.layer_validation import find_span
from policyguard.compiler.load.scalars import parse_count, parse_duration
from policyguard.engines.yaml_tree import MappingNode, Node, Path, ScalarNode, to_plain
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect

_WEAK_SETTINGS = {"mode": ("observe", "enforce"), "on_internal_error": ("allow", "block")}
"""Settings of the whole policy: the weak value, and the strong one, which is the default."""
_MAXIMA = ("max", "calls", "tokens", "cost", "time", "concurrent", "timeout")
_THRESHOLDS = ("ask_at", "halt_at")
_ENTRY_LEVELS = {"rules": 1, "budgets": 1, "params": 1, "limits": 3}
"""Sections of entries that a layer may loosen, and how deep in them the entries are."""
_REFUSING_SECTIONS = ("rules", "budgets", "limits", "learn", "radius")


def check(context: LintContext) -> Iterator[Finding]:
    """Report weak inherited settings, and what the top layer loosens."""
    top, inherited = context.merged.top_layer, context.merged.inherited
    for name, (weak, strong) in _WEAK_SETTINGS.items():
        own, old = top.get(name), inherited.get(name)
        if own is not None and to_plain(own) == weak:
            if old is not None and to_plain(old) == strong:
                message = f"this weakens the inherited `{name}: {strong}` for the whole policy"
                yield Finding(own.span, message, "remove it, or ignore this with a reason")
        elif own is None and old is not None and to_plain(old) == weak:
            section = next((key for key in _REFUSING_SECTIONS if key in top), None)
            if section is not None:
                message = (
                    f"`{name}: {weak}` of {old.source.file} holds here too: "
                    f"nothing in this file {'refuses a call' if name == 'mode' else 'fails closed'}"
                )
                help_text = f"write `{name}: {strong}`, or repeat `{name}: {weak}` to confirm it"
                yield Finding(find_span(top, (section,), key=True), message, help_text)
    for section, depth in _ENTRY_LEVELS.items():
        own, old = top.get(section), inherited.get(section)
        for path, before, after in _overridden(old, own, (section,), depth):
            if before.source.file.startswith(PACK_PREFIX):
                continue
            for key, reason in _loosened(section, before, after):
                message = f"this loosens {_name(path)} of {before.source.file}: {reason}"
                help_text = "keep the inherited value, or ignore this with a reason"
                at = (*path, key) if key else path
                yield Finding(find_span(top, at, key=True), message, help_text)


def _overridden(
    old: Node | None, new: Node | None, path: Path, depth: int
) -> Iterator[tuple[Path, Node, Node]]:
    """Yield the path, the inherited and the own value of each entry that a layer overrides."""
    if old is None or new is None:
        return
    if not depth:
        yield path, old, new
    elif isinstance(old, MappingNode) and isinstance(new, MappingNode):
        # `limits.default` has its kinds one level higher than `limits.tools`.
        levels = depth - (2 if path == ("limits",) else 1)
        for key, value in new.entries:
            deeper = levels + (path == ("limits",) and key.text != "default")
            yield from _overridden(old.get(key.text), value, (*path, key.text), deeper)


def _loosened(section: str, old: Node, new: Node) -> Iterator[tuple[str, str]]:
    """Yield each loosened key of an entry (empty for the entry itself), and how."""
    if isinstance(new, ScalarNode):
        if section == "limits" and new.text == "none" and not isinstance(old, ScalarNode):
            yield "", "it is switched off"
        elif section == "limits" and _is_larger(new, old):
            yield "", f"{_text(old)} becomes {new.text}"
        return
    if not isinstance(old, MappingNode) or not isinstance(new, MappingNode):
        return
    if section == "params":
        for key in ("min", "max"):
            before, after = old.get(key), new.get(key)
            if before is None or after is None:
                continue
            smaller, larger = (before, after) if key == "max" else (after, before)
            if _is_larger(larger, smaller):
                yield key, f"`{key}` changes from {_text(before)} to {_text(after)}"
        return
    if _text(new.get("mode")) == "observe" and _text(old.get("mode")) != "observe":
        yield "mode", "it no longer acts"
    before_effect, after_effect = _effect(old), _effect(new)
    if after_effect < before_effect:
        yield "effect" if "effect" in new else "", f"{before_effect} becomes {after_effect}"
    for key in (*_MAXIMA, *_THRESHOLDS):
        before, after = old.get(key), new.get(key)
        if after is not None and before is not None and _is_larger(after, before):
            yield key, f"`{key}` rises from {_text(before)} to {_text(after)}"


def _effect(entry: MappingNode) -> Effect:
    text = _text(entry.get("effect"))
    return Effect(text) if text in set(Effect) else Effect.BLOCK


def _is_larger(one: Node, other: Node) -> bool:
    sizes = [_size(to_plain(node)) for node in (one, other)]
    return sizes[0] is not None and sizes[1] is not None and sizes[0] > sizes[1]


def _size(value: Any) -> float | None:
    """Return a number, count or duration as a number; None for anything else."""
    if isinstance(value, str):
        found = parse_count(value)
        return parse_duration(value) if found is None else found
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, ScalarNode) else ""


def _name(path: Path) -> str:
    return f"`{'.'.join(map(str, path))}`"

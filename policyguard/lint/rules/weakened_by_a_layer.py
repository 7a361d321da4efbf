"""A layer that takes strength from another one.

`mode: observe` and `on_internal_error: allow` of an inherited file hold for the whole policy: no
entry of its own refuses a call. And a layer may loosen what an inherited file of yours sets: switch
it to observe, give it a weaker effect, raise its limit, look back less far, let the call run
without an approval. Each may be meant; none should go unseen. Tuning the packs that come with
policyguard is not reported, and a param may take any value within its bounds.

`classify.targets` and `fingerprint.ignore` replace the inherited list as a whole. Targets that they
leave out are reported, also a pack's: inherited entries no longer see them. Arguments that are no
longer ignored let a loop pass. Those that are now ignored widen each approval that an inherited
rule asks for.

Avoid:

    # base.yaml has `mode: observe`
    extends: [base.yaml]
    rules: {no-drop: {tools: [drop_*], effect: block}}

Prefer to say the mode where the rules are, and to loosen a limit with a reason:

    extends: [base.yaml]
    mode: enforce
    budgets:
      mails: {calls: 50}   # policyguard: ignore[lint/weakened-by-a-layer] newsletters
    classify:
      targets: [path, file, dest]   # the base has [path, file]
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.compiler.load.layer_validation import find_span
from policyguard.engines.yaml_tree import MappingNode, Node, Path, descend, to_plain
from policyguard.lint.analysis.loosening import find_loosened, insert_params, list_missing
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text

_WEAK_SETTINGS = {"mode": ("observe", "enforce"), "on_internal_error": ("allow", "block")}
"""Settings of the whole policy: the weak value, and the strong one, which is the default."""
_TARGETS: Path = ("classify", "targets")
_IGNORED: Path = ("classify", "fingerprint", "ignore")
_ENTRY_LEVELS = {"rules": 1, "budgets": 1, "params": 1, "limits": 3, "learn": 0, "radius": 0}
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
            elif old is None and (file := _find_refusing_file(inherited)):
                message = f"this weakens the entries of {file}: the default is `{name}: {strong}`"
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
    yield from _check_lists(top, inherited)
    for section, depth in _ENTRY_LEVELS.items():
        own, old = top.get(section), inherited.get(section)
        for path, before, after in _overridden(old, own, (section,), depth):
            if before.source.file.startswith(PACK_PREFIX):
                continue
            before, after = insert_params(before, inherited), insert_params(after, top, inherited)
            for key, reason in find_loosened(section, before, after):
                message = f"this loosens {_name(path)} of {before.source.file}: {reason}"
                help_text = "keep the inherited value, or ignore this with a reason"
                at = (*path, key) if key else path
                yield Finding(find_span(top, at, key=True), message, help_text)


def _find_refusing_file(inherited: MappingNode) -> str:
    """Return a file, not a pack's, whose entries may refuse calls; empty if there is none."""
    sections = [inherited.get(key) for key in _REFUSING_SECTIONS]
    entries = [node for one in sections if isinstance(one, MappingNode) for _, node in one.entries]
    files = (node.source.file for node in entries)
    return next((file for file in files if not file.startswith(PACK_PREFIX)), "")


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


def _check_lists(top: MappingNode, inherited: MappingNode) -> Iterator[Finding]:
    """Report lists of arguments, replaced as a whole, with which inherited entries see less."""
    for names in (_TARGETS, _IGNORED):
        (old, no_old), (own, no_own) = descend(inherited, names), descend(top, names)
        if no_own or (no_old and names is _TARGETS):
            continue
        span = find_span(top, names, key=True)
        is_tuned = names is _IGNORED and old.source.file.startswith(PACK_PREFIX)
        if not is_tuned and (missing := list_missing(old, own)):
            message = f"this leaves out {_quote_all(missing)} of {old.source.file}"
            yield Finding(span, message, "list them too, or ignore this with a reason")
        added = list_missing(own, old) if not no_old else to_plain(own)
        asking = _find_asking(inherited)
        if names is _IGNORED and asking is not None and added:
            message = (
                f"an approval of the inherited `{asking}` now holds for any {_quote_all(added)}"
            )
            yield Finding(span, message, "ignore this with a reason if none of them matters there")


def _find_asking(inherited: MappingNode) -> str | None:
    """Return the id of the first inherited entry that asks for an approval."""
    for section in ("rules", "budgets"):
        entries = inherited.get(section)
        for key, entry in entries.entries if isinstance(entries, MappingNode) else ():
            if not isinstance(entry, MappingNode):
                continue
            effect = entry.get("effect")
            if "ask_at" in entry or (effect is not None and to_plain(effect) == "ask"):
                return key.text
    return None


def _quote_all(names: list[str]) -> str:
    return ", ".join(map(quote_text, names))


def _name(path: Path) -> str:
    return f"`{'.'.join(map(str, path))}`"

"""Packs that a policy extends say different things, and only the last of them holds.

Later layers replace what earlier ones say: the same limit of the same tool, class or default, the
same id, the same setting. Between two packs nobody has decided that; whoever extends both should
know what the one takes away from the other, above all where it loosens it.

Avoid:

    extends: [core, loop-controller]      # a note in place of core's refusal of repetitions

Prefer the order that you mean, and say in your own policy what is to hold:

    extends: [loop-controller, core]
    limits: {default: {repeat: {max: 4, effect: block}}}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from policyguard.compiler.load.loader import load_layers
from policyguard.compiler.provenance import collect_provenance
from policyguard.engines.yaml_tree import ScalarNode, SequenceNode
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.report.policy.annotated import AnnotatedValue

_NAMED = 6
"""Places that a message names; more of them are counted."""
_DESCRIPTION = frozenset({"policyguard", "name", "description", "owner", "extends"})


def check(subject: LintContext) -> Iterator[Finding]:
    """For each pack under `extends`: what it takes away from those before it."""
    top = subject.merged.top_layer
    extends = top.get("extends")
    packs = extends.items if isinstance(extends, SequenceNode) else ()
    if len(packs) < 2:
        return
    file = top.source.file
    layers = load_layers([_name(file)]).layers
    made = collect_provenance(subject.policy, subject.merged, layers)
    taken: dict[tuple[str, str], list[str]] = {}
    for name, value in made.sections.value.items() if isinstance(made.sections.value, dict) else ():
        if name not in _DESCRIPTION:
            for way, before, now in _replaced(value, name):
                if file not in (before.file, now.file) and _pack(before) != _pack(now):
                    taken.setdefault((_pack(now), _pack(before)), []).append(way)
    for item in packs:
        if isinstance(item, ScalarNode):
            said = [
                f"of `{_short(loser)}`: {_listed(ways)}"
                for (winner, loser), ways in taken.items()
                if _same(item.text, winner)
            ]
            if said:
                message = f"`{item.text}` replaces {'; '.join(said)}"
                hint = "say here what is to hold; `policyguard policy show --overridden` shows both"
                yield Finding(item.span, message, hint)


def _replaced(
    value: AnnotatedValue, way: str
) -> Iterator[tuple[str, AnnotatedValue, AnnotatedValue]]:
    """Every value that has taken the place of another one: the way to it, the old and the new."""
    for before in value.overridden:
        yield way, before, value
    if isinstance(value.value, dict) and not value.overridden:
        for name, below in value.value.items():
            yield from _replaced(below, f"{way}/{name}")
    elif isinstance(value.value, list):
        for item in value.value:
            named = item.value.get("id") if isinstance(item.value, dict) else None
            yield from _replaced(item, f"{way}/{named.value}" if named is not None else way)


def _name(file: str) -> str:
    """What a layer is loaded by: a pack's name, or the file."""
    return str(PurePath(file.removeprefix("pack:")).parent) if file.startswith("pack:") else file


def _pack(value: AnnotatedValue) -> str:
    return _name(value.file)


def _same(text: str, pack: str) -> bool:
    return PurePath(text).name in (pack, PurePath(pack).name)


def _short(pack: str) -> str:
    return PurePath(pack).name


def _listed(ways: list[str]) -> str:
    named = [f"`{way}`" for way in dict.fromkeys(ways)]
    more = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and {more} more" if more > 0 else "")

"""Two packs set the same value, and the last one wins.

Later layers replace earlier values: a limit of the same tool, class or default, an entry with the
same id, or the same setting. No layer decides such a conflict between two packs. Check what the
later pack replaces, above all where it is looser.

Avoid:

    extends: [core, loop-controller]      # advises where core refuses a repetition

Prefer the order you mean, and set the value in your own policy:

    extends: [loop-controller, core]
    limits: {default: {repeat: {max: 4, effect: block}}}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from policyguard.compiler.load.loader import load_layers
from policyguard.compiler.provenance import collect_provenance
from policyguard.engines.yaml_tree import ScalarNode, SequenceNode
from policyguard.lint.rule import Finding, LintContext
from policyguard.report.policy.annotated import AnnotatedValue

_MAX_NAMED = 6
"""Values a message names; the rest are counted."""
_DESCRIPTIVE_KEYS = frozenset({"policyguard", "name", "description", "owner", "extends"})


def check(context: LintContext) -> Iterator[Finding]:
    """Report what each pack under `extends` replaces of the packs before it."""
    top = context.merged.top_layer
    extends = top.get("extends")
    extended = extends.items if isinstance(extends, SequenceNode) else ()
    if len(extended) < 2:
        return
    file = top.source.file
    layers = load_layers([_layer_name(file)]).layers
    provenance = collect_provenance(context.policy, context.merged, layers)
    replaced: dict[tuple[str, str], list[str]] = {}
    sections = provenance.sections.value
    for name, value in sections.items() if isinstance(sections, dict) else ():
        if name not in _DESCRIPTIVE_KEYS:
            for path, before, now in _replacements(value, name):
                pair = _layer_name(now.file), _layer_name(before.file)
                if file not in (before.file, now.file) and pair[0] != pair[1]:
                    replaced.setdefault(pair, []).append(path)
    for item in extended:
        if isinstance(item, ScalarNode):
            conflicts = [
                f"{_format_paths(paths)} of `{PurePath(earlier).name}`"
                for (later, earlier), paths in replaced.items()
                if PurePath(item.text).name in (later, PurePath(later).name)
            ]
            if conflicts:
                message = f"`{item.text}` replaces {'; '.join(conflicts)}"
                hint = "set the value here; `policyguard policy show --overridden` shows both"
                yield Finding(item.span, message, hint)


def _replacements(
    value: AnnotatedValue, path: str
) -> Iterator[tuple[str, AnnotatedValue, AnnotatedValue]]:
    """Yield the path, the old and the new value of each replacement."""
    for before in value.overridden:
        yield path, before, value
    if isinstance(value.value, dict) and not value.overridden:
        for name, child in value.value.items():
            yield from _replacements(child, f"{path}/{name}")
    elif isinstance(value.value, list):
        for item in value.value:
            entry_id = item.value.get("id") if isinstance(item.value, dict) else None
            yield from _replacements(
                item, f"{path}/{entry_id.value}" if entry_id is not None else path
            )


def _layer_name(file: str) -> str:
    """Return the name that loads a layer: a pack's name, or the file."""
    return str(PurePath(file.removeprefix("pack:")).parent) if file.startswith("pack:") else file


def _format_paths(paths: list[str]) -> str:
    quoted = [f"`{path}`" for path in dict.fromkeys(paths)]
    more = len(quoted) - _MAX_NAMED
    return ", ".join(quoted[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")

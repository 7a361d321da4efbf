"""A limit that takes the place of several inherited ones.

A layer replaces the limits of a kind as a whole. A pack may have several of a kind, each of which
counts something else: `core` has six `failures`, by error, by call, by tool, of sub-agents and of
all calls. One limit in their place leaves out what the others count.

Avoid:

    extends: [core]
    limits:
      default:
        failures: {max: 4, same: error}   # the other five are gone

Prefer to keep those that shall hold besides (`policyguard policy show core --section limits`), or
ignore this with a reason:

    limits:
      default:
        failures:
          - {max: 4, same: error, per: turn, advise_at: 3}
          - {max: 6, same: call, advise_at: 2}
          - {max: 6, same: error, by: tool, per: turn, advise_at: 4}
          - {max: 9, by: tool, per: turn, advise_at: 6}
          - {max: 15, same: call, count: tree, advise_at: 7}
          - {max: 12, per: turn, advise_at: 10}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.load.layer_validation import find_span
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    Path,
    SequenceNode,
    descend,
    to_plain,
)
from policyguard.lint.rule import Finding, LintContext

_COUNTED = ("same", "by", "count", "despite_changes", "without_news")
"""The keys that say what a limit counts."""


def check(context: LintContext) -> Iterator[Finding]:
    """Report limits of the top layer that leave out what several inherited ones count."""
    top, inherited = context.merged.top_layer, context.merged.inherited
    for path, node in _find_limits(top.get("limits"), ("limits",)):
        old, rest = descend(inherited, path)
        if rest or not isinstance(old, SequenceNode) or len(old.items) < 2:
            continue
        kept = [_counts(item) for item in _list_items(node)]
        lost = [text for item in old.items if (text := _counts(item)) not in kept]
        if kept and lost:
            verb = "counts" if len(lost) == 1 else "count"
            message = (
                f"this replaces {len(old.items)} inherited `{path[-1]}` limits; what "
                f"{len(lost)} of them {verb} is not counted any more"
            )
            span = find_span(top, path, key=True)
            help_text = "repeat those that shall hold besides, or ignore this with a reason"
            yield Finding(span, message, help_text, severity="info")


def _find_limits(node: Node | None, path: Path) -> Iterator[tuple[Path, Node]]:
    """Yield the limits of each kind: `limits.default.failures`, `limits.tools.x.failures`."""
    if isinstance(node, MappingNode):
        for key, value in node.entries:
            inner = (*path, key.text)
            if len(inner) == (3 if inner[1:2] == ("default",) else 4):
                yield inner, value
            else:
                yield from _find_limits(value, inner)


def _list_items(node: Node) -> tuple[Node, ...]:
    return tuple(node.items) if isinstance(node, SequenceNode) else (node,)


def _counts(node: Node) -> str:
    """Return what a limit counts, as its keys say."""
    limit = to_plain(node)
    keys = limit if isinstance(limit, dict) else {}
    found = [f"{key}: {str(keys[key]).lower()}" for key in _COUNTED if key in keys]
    return f"by `{', '.join(found)}`" if found else "all together"

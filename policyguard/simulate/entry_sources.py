"""Where the entries of a report are written in the policy, and their first lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.entry_paths import list_entry_ids
from policyguard.report.replay.figures import RuleFigures

_MAX_LINES = 12
"""Lines of an entry that a report holds."""
_MAX_CHARS = 200
"""Characters of such a line."""


def add_sources(rules: Iterable[RuleFigures], compiled: CompiledPolicy) -> None:
    """Set the file, line and source of entries that fired."""
    fired = list(rules)
    ids = {rule.id for rule in fired}
    paths = {id_: path for id_, path in list_entry_ids(compiled.policy) if id_ in ids}
    for rule in fired:
        path = paths.get(rule.id)
        if path is None:
            continue
        span = compiled.merged.span_of(path, key=True)
        lines = compiled.merged.node(path).source.lines
        rule.file, rule.line = span.file, span.line
        rule.source = [
            line[:_MAX_CHARS] for line in islice(_entry_lines(lines[span.line - 1 :]), _MAX_LINES)
        ]


def _entry_lines(lines: list[str]) -> Iterator[str]:
    """Yield the first of these lines and those after it that are indented further.

    Their common indent is left out.
    """
    first, *others = lines
    indent = len(first) - len(first.lstrip())
    yield first[indent:]
    blank: list[str] = []
    for line in others:
        text = line.lstrip()
        if not text:
            blank.append("")
        elif len(line) - len(text) <= indent:
            return
        else:
            yield from blank
            blank.clear()
            yield line[indent:]

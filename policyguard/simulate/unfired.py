"""The policy's own entries, which of them fired, and whether the tools they name were called."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.entry_paths import list_entry_ids
from policyguard.compiler.build.selectors.selector import compile_tool_glob
from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.report.replay.figures import UnfiredEntry

_MAX_TOOLS = 4096
"""Tools to remember as checked: a recording may have any number of them."""


class ToolUsage:
    """The globs by which entries name tools; `used` are those that a call has matched."""

    def __init__(self, own_entries: Collection[UnfiredEntry]) -> None:
        self.used: set[str] = set()
        self._unused = {
            name: compile_tool_glob(name) for entry in own_entries for name in entry.absent_tools
        }
        self._checked: set[tuple[str, str]] = set()

    def add(self, tool: str, server: str) -> None:
        """Note a call of a server's tool."""
        if not self._unused or (tool, server) in self._checked:
            return
        if len(self._checked) < _MAX_TOOLS:
            self._checked.add((tool, server))
        for name in [name for name, matches in self._unused.items() if matches(tool, server)]:
            self.used.add(name)
            del self._unused[name]


def find_own_entries(compiled: CompiledPolicy) -> list[UnfiredEntry]:
    """Return the entries on calls that are not from packs, with the tools they name."""
    if not compiled.inputs.own_files:
        return []  # locating every entry takes 0.1 s
    return list(_own_entries(compiled))


def find_unfired(
    own_entries: list[UnfiredEntry], fired: Collection[str], used_tools: Collection[str]
) -> Iterator[UnfiredEntry]:
    """Yield the entries that never fired. A replay cannot tell whether a timeout would."""
    for entry in own_entries:
        tools = entry.absent_tools
        absent = [] if any(name in used_tools for name in tools) else tools
        if entry.id not in fired and (absent or not entry.id.endswith("/timeout")):
            yield msgspec.structs.replace(entry, absent_tools=absent)


def _own_entries(compiled: CompiledPolicy) -> Iterator[UnfiredEntry]:
    policy = compiled.policy
    selectors = {("rules", rule.id): rule.tools for rule in policy.rules}
    selectors |= {("budgets", budget.id): budget.tools for budget in policy.budgets}
    for id_, path in list_entry_ids(compiled.policy):
        kind = str(path[0])
        if kind not in ("rules", "budgets", "limits", "exceptions"):
            continue
        span = compiled.merged.span_of(path, key=True)
        if span.file.startswith(PACK_PREFIX):
            continue
        tools: list[str] = []
        if path[:2] == ("limits", "tools"):
            tools = [str(path[2])]
        else:
            selector = selectors.get((kind, str(path[1])))
            if selector is not None and not selector.outside:
                tools = list(selector.items)
        yield UnfiredEntry(id_, span.file, span.line, tools)

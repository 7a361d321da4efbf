"""The policy's own entries, and which of the tools that they name the recordings have."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.selectors import compile_glob
from policyguard.compiler.entry_ids import list_entry_ids
from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.model.entry import SelectiveEntry
from policyguard.report.replay.figures import UnfiredEntry

_MAX_TOOLS = 4096
"""Tools that are remembered to have been looked at: a recording may have any number of them."""


class ToolUsage:
    """The tools that entries name as globs: `met` are those of them that a call was of."""

    def __init__(self, own_entries: Collection[UnfiredEntry]) -> None:
        self.used: set[str] = set()
        self._unused = {
            name: compile_glob(name) for entry in own_entries for name in entry.absent_tools
        }
        self._checked: set[str] = set()

    def add(self, tool: str) -> None:
        """A call of this tool was made."""
        if not self._unused or tool in self._checked:
            return
        if len(self._checked) < _MAX_TOOLS:
            self._checked.add(tool)
        found = {name for name, matches in self._unused.items() if matches(tool)}
        self.used |= found
        self._unused = {name: self._unused[name] for name in self._unused if name not in found}


def find_own_entries(compiled: CompiledPolicy) -> list[UnfiredEntry]:
    """The rules, limits and budgets that stand in no pack, with all the tools that they name."""
    if all(file.key.startswith(PACK_PREFIX) for file in compiled.inputs.files):
        return []  # to find out where each entry stands takes 0.1 s
    selecting: dict[tuple[str, str], SelectiveEntry] = {
        (kind, entry.id): entry
        for kind, group in (("rules", compiled.policy.rules), ("budgets", compiled.policy.budgets))
        for entry in group
    }
    return list(_own_entries(compiled, selecting))


def find_unfired(
    own_entries: list[UnfiredEntry], fired: Collection[str], used_tools: Collection[str]
) -> Iterator[UnfiredEntry]:
    """Those of them that had nothing to say. What a timeout says, no replay tells."""
    for entry in own_entries:
        absent = (
            [] if any(name in used_tools for name in entry.absent_tools) else entry.absent_tools
        )
        if entry.id not in fired and (absent or not entry.id.endswith("/timeout")):
            yield msgspec.structs.replace(entry, absent_tools=absent)


def _own_entries(
    compiled: CompiledPolicy, selecting: dict[tuple[str, str], SelectiveEntry]
) -> Iterator[UnfiredEntry]:
    for id_, path in list_entry_ids(compiled):
        kind = str(path[0])
        if kind not in ("rules", "budgets", "limits"):
            continue
        span = compiled.merged.span_of(path, key=True)
        if span.file.startswith(PACK_PREFIX):
            continue
        tools: tuple[str, ...] = ()
        if path[:2] == ("limits", "tools"):
            tools = (str(path[2]),)
        elif kind != "limits":
            selector = selecting[kind, str(path[1])].tools
            if selector is not None and not selector.outside:
                tools = selector.items
        yield UnfiredEntry(id_, span.file, span.line, list(tools))

"""One of two policies that are compared: its entries, and how it writes their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.compare.semantics import (
    PINNED_TOOLS,
    EntrySemantics,
    FieldPath,
    FieldValues,
    ParamValue,
    PolicySemantics,
    locate_value,
    read_semantics,
)
from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.selectors.selector import tool_glob_specificity, tool_globs_overlap
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    Path,
    SequenceNode,
    get_child,
    to_plain,
)
from policyguard.model.amounts import format_duration
from policyguard.report.policy.annotated import block_lines, flow_yaml

NOT_GIVEN = "not given"
_DURATION_FIELDS = frozenset(
    {
        "within",
        "cooldown",
        "timeout",
        "time",
        "keep_for",
        "max_gap",
        "half_life",
        "lives",
        "unreported",
        "cleanup",
    }
)
_SECTIONS_WITH_EXAMPLES = frozenset({"rules", "signatures"})
_SHOWN_DIGITS = 12
"""Of a hash, in hex."""


class PolicySide:
    """A policy's semantics, and how they are written."""

    def __init__(self, compiled: CompiledPolicy, env_params: frozenset[str]) -> None:
        self._merged = compiled.merged
        trees = (program.tree for _, program in compiled.expressions)
        self.semantics: PolicySemantics = read_semantics(
            compiled.policy, compiled.merged, trees, env_params
        )

    def find_entry(self, id_: str) -> EntrySemantics | None:
        """Return an entry, or None if it is missing or empty."""
        entry = self.semantics.entries.get(id_)
        return entry if entry is not None and entry.fields else None

    def is_ineffective_none(self, id_: str) -> bool:
        """Return whether an entry is a `none` that disables no other limit."""
        entry = self.semantics.entries[id_]
        if not id_.startswith("limits/") or entry.fields.get(()) != "none":
            return False
        kind = id_.rpartition("/")[2]
        return id_.startswith("limits/default/") or all(
            limit.fields.get(()) == "none"
            for other, limit in self.semantics.entries.items()
            if other.startswith("limits/") and other.endswith(f"/{kind}")
        )

    def has_limit(self, *kinds: str) -> bool:
        """Return whether there is an entry for a limit of one of these kinds."""
        return any(
            id_.startswith("limits/") and id_.endswith(tuple(f"/{kind}" for kind in kinds))
            for id_ in self.semantics.entries
        )

    def wider_limits(self, level: str, kind: str) -> Iterator[FieldValues | None]:
        """Yield the limits, or None, that may apply to calls at a level without this limit."""
        default = self.find_entry(f"limits/default/{kind}") if level != "default" else None
        yield default.fields if default is not None else None
        if not level.startswith("tools:"):
            return
        for id_, entry in self.semantics.entries.items():
            other_level, _, other_kind = id_.removeprefix("limits/").rpartition("/")
            if not id_.startswith("limits/") or other_kind != kind or other_level == "default":
                continue
            if other_level.startswith("classes:") or _may_contain(other_level[6:], level[6:]):
                yield entry.fields

    def format_value(self, path: Path, field: FieldPath, value: Any) -> str:
        """Return a value as the policy writes it, or a default."""
        if path[:2] == PINNED_TOOLS and len(path) > 2:
            return f"sha256 {value[:_SHOWN_DIGITS]}"
        node, is_shorthand = locate_value(self._merged, path, field)
        if value is None and is_shorthand:
            return NOT_GIVEN
        if node is not None:
            text = flow_yaml(_to_shown(path, node))
            params = sorted(value.params) if isinstance(value, ParamValue) else ()
            return f"{text} now, from ${', $'.join(params)}" if params else text
        if value is None:
            return NOT_GIVEN
        is_duration = field and field[-1] in _DURATION_FIELDS and isinstance(value, int)
        return f"{format_duration(value) if is_duration else _format_default(value)} (default)"

    def format_lines(self, path: Path, field: FieldPath, value: Any = None) -> tuple[str, ...]:
        """Return a value that the policy gives as readable lines; empty for a default or param."""
        node, is_shorthand = locate_value(self._merged, path, field)
        if node is None or isinstance(value, ParamValue) or (value is None and is_shorthand):
            return ()
        return tuple(block_lines(_to_shown(path, node)))

    def is_written(self, path: Path, field: FieldPath) -> bool:
        """Return whether the policy gives a value, rather than its default."""
        return locate_value(self._merged, path, field).node is not None

    def location(self, path: Path, field: FieldPath = ()) -> tuple[str, int]:
        """Return the file and line of a value of the entry at `path`, or of what contains it."""
        node = self._merged.node(path) if self._merged.has(path) else None
        for step in field:
            if isinstance(node, MappingNode) and step not in node and step == "0":
                continue  # see `locate_value`
            key = int(step) if isinstance(node, SequenceNode) and step.isdecimal() else step
            node = get_child(node, key) if node is not None else None
            path = (*path, key)
        span = self._merged.span_of(path, key=True)
        return span.file, span.line


def _to_shown(path: Path, node: Node) -> Any:
    """Return a value without the examples, which make no difference to calls."""
    value = to_plain(node)
    return _drop_examples(value) if path[0] in _SECTIONS_WITH_EXAMPLES else value


def _drop_examples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_examples(child) for key, child in value.items() if key != "examples"}
    return [_drop_examples(child) for child in value] if isinstance(value, list) else value


def _may_contain(wide: str, glob: str) -> bool:
    """Return whether calls that match a glob may also match a wider one."""
    is_wider = tool_glob_specificity(wide) < tool_glob_specificity(glob)
    return is_wider and tool_globs_overlap(wide, glob)


def _format_default(value: Any) -> str:
    match value:
        case ("bool", bool(flag)):
            return flow_yaml(flag)
        case frozenset() | tuple():
            return flow_yaml(sorted(map(str, value)))
    return str(value) or flow_yaml("")

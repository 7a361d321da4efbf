"""The tools that a policy's `schemas` describe: which there are, and what arguments they take.

The file is the answer of an MCP server to `tools/list` (alone, or with its JSON-RPC around it), the
list of functions that goes to a model (OpenAI's of both forms, Anthropic's), or a list of several
such. It speaks for the file that names it and for those that extend it; what is inherited was
written without knowing these tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec

from policyguard.cel import Declarations
from policyguard.cel.types.types import EnumType, RecordType, Type, enum_of, record
from policyguard.compiler.build.selectors import compile_glob
from policyguard.compiler.check.tool_types import ANY_ARGUMENTS, argument_type, union_arguments
from policyguard.compiler.inputs import InputFile
from policyguard.compiler.load.layer_validation import first_line
from policyguard.compiler.load.loader import read_sibling_file
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.json_source import parse
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    Path,
    ScalarNode,
    SequenceNode,
    get_child,
)
from policyguard.model.diagnostic import Diagnostic, Span

PSEUDO_TOOLS = frozenset({"@spawn", "@finish"})
"""What adapters call what an agent does besides calling tools."""

_SCHEMA_KEYS = ("inputSchema", "input_schema", "parameters")
_ACCEPTED_FORMS = "neither an MCP `tools/list` answer nor a list of functions as it goes to a model"


@dataclass(frozen=True)
class ToolCatalog:
    """The type of each tool's arguments, and in which files of the policy these tools are known.

    `described` is the file that says so.
    """

    argument_types: dict[str, Type]
    policy_files: frozenset[str]
    source_file: InputFile

    @cached_property
    def name_type(self) -> EnumType:
        """The names that `call.tool` may have."""
        return enum_of("tool", PSEUDO_TOOLS | self.argument_types.keys())

    def matching_tools(self, item: str) -> frozenset[str]:
        """The known tools that an item of a selector names."""
        return frozenset(filter(compile_glob(item), self.name_type.members))

    def arguments_of(self, items: Iterable[str]) -> Type:
        """The type of `call.args` for calls of the tools that a selector names."""
        found = [
            self.argument_types.get(name, ANY_ARGUMENTS)
            for item in items
            for name in sorted(self.matching_tools(item))
        ]
        return union_arguments(found) if found else ANY_ARGUMENTS

    def arguments_at(self, path: Path, merged: MergedPolicy) -> Type:
        """The type of `call.args` in an expression, or a message, of the merged policy."""
        return self.arguments_of(_selected_tools(path, merged))

    def refine_declarations(
        self, path: Path, merged: MergedPolicy, declarations: Declarations
    ) -> Declarations:
        """What an expression at `path` may name, where these tools are known."""
        call = declarations.variables.get("call")
        if not isinstance(call, RecordType) or merged.origin(path) not in self.policy_files:
            return declarations
        fields = {**call.fields, "tool": self.name_type, "args": self.arguments_at(path, merged)}
        functions = [
            msgspec.structs.replace(one, parameters=(self.name_type,))
            if one.name == "count"
            else one
            for one in declarations.functions
        ]
        typed = record(fields, call.optional, call.name)
        return Declarations({**declarations.variables, "call": typed}, functions)


def read_tools(merged: MergedPolicy) -> tuple[ToolCatalog | None, list[Diagnostic]]:
    """The tools that a policy's `schemas` describe; None where it has none, or they are broken."""
    named = merged.tree.get("schemas")
    if not isinstance(named, ScalarNode):
        return None, []
    found = read_sibling_file(named)
    if isinstance(found, Diagnostic):
        return None, [found]
    file, data = found
    source, root, wrong = parse(data, file.display_name)
    if root is None:
        return None, wrong
    types: dict[str, Type] = {}
    for tool in _tool_definitions(root, wrong):
        _add_tool(tool, types, wrong)
    if not types and not wrong:
        wrong.append(
            source.diagnostic("tools/form", "there is no tool in this file", _first_line_span(root))
        )
    order = list(merged.sources)
    files = frozenset(order[order.index(named.source.file) :])
    return (None if wrong else ToolCatalog(types, files, file)), wrong


def _tool_definitions(
    node: Node, wrong: list[Diagnostic], *, inside: bool = False
) -> Iterator[MappingNode]:
    """What describes a tool, in any of the forms; `inside` a list of several."""
    if isinstance(node, MappingNode):
        around = node.get("result")
        answer = around if isinstance(around, MappingNode) else node
        listed = answer.get("tools")
        more = answer.get("nextCursor")
        if isinstance(more, ScalarNode) and more.value is not None:
            key = answer.key_node("nextCursor").span
            message = "this is one page of the answer: more tools follow"
            hint = "ask for all pages, and put them into a list"
            wrong.append(node.source.diagnostic("tools/incomplete", message, key, hint=hint))
        if isinstance(listed, SequenceNode):
            yield from _listed_tools(listed, wrong)
            return
        if inside:
            yield node
            return
    elif isinstance(node, SequenceNode) and not inside:
        for item in node.items:
            yield from _tool_definitions(item, wrong, inside=True)
        return
    wrong.append(
        node.source.diagnostic("tools/form", f"this is {_ACCEPTED_FORMS}", _first_line_span(node))
    )


def _listed_tools(listed: SequenceNode, wrong: list[Diagnostic]) -> Iterator[MappingNode]:
    for item in listed.items:
        if isinstance(item, MappingNode):
            yield item
        else:
            wrong.append(
                item.source.diagnostic("tools/form", "this is not a tool", _first_line_span(item))
            )


def _add_tool(tool: MappingNode, types: dict[str, Type], wrong: list[Diagnostic]) -> None:
    inner = tool.get("function")
    described = inner if isinstance(inner, MappingNode) else tool
    name = described.get("name")
    kind = tool.get("type")
    if not isinstance(name, ScalarNode) or not isinstance(name.value, str) or not name.text:
        if isinstance(kind, ScalarNode) and kind.text != "function":
            return  # a tool that the model's provider runs
        message = "a tool has a `name`"
        wrong.append(tool.source.diagnostic("tools/form", message, _first_line_span(tool)))
        return
    schema = next(
        (found for key in _SCHEMA_KEYS if (found := described.get(key)) is not None), None
    )
    taken, malformed = (ANY_ARGUMENTS, []) if schema is None else argument_type(schema)
    wrong += malformed
    if name.text in types:  # two servers may have a tool of one name
        taken = union_arguments([types[name.text], taken])
    types[name.text] = taken


def _selected_tools(path: Path, merged: MergedPolicy) -> list[str]:
    """The globs of the tools that the entry around a value is about; none where it is open."""
    if path[:2] == ("limits", "tools") and len(path) > 2:
        return [str(path[2])]
    node: Node | None = merged.tree
    found: list[str] = []
    for step in path:
        node = get_child(node, step) if node is not None else None
        tools = node.get("tools") if isinstance(node, MappingNode) else None
        if isinstance(tools, SequenceNode):
            found = [item.text for item in tools.items if isinstance(item, ScalarNode)]
    return found


def _first_line_span(node: Node) -> Span:
    return first_line(node.source, node.span)

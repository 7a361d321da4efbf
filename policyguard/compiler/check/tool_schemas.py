"""Read the tools and argument types that a policy's `schemas`, or its lock, describe.

The file of `schemas` is an MCP server's `tools/list` response (with or without its JSON-RPC
envelope), the list of functions sent to a model (both OpenAI forms, Anthropic), a list of these, or
a lock. It applies to the file that names it and to those that extend it, not to inherited files,
whose authors did not know these tools.

A lock that only `pins` names has the tools of some servers. An agent has others, too, so that names
are checked only with a server that it pins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec

from policyguard.cel import Declarations
from policyguard.cel.types.types import EnumType, RecordType, Type, enum_of, record
from policyguard.compiler.build.selectors.selector import compile_glob
from policyguard.compiler.check.pinned_tools import PinnedTools
from policyguard.compiler.check.tool_types import ANY_ARGUMENTS, argument_type, union_arguments
from policyguard.compiler.inputs import InputFile
from policyguard.compiler.load.layer_validation import first_line_span
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
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.tool_name import join_tool_name, parse_tool_name, short_tool_glob

PSEUDO_TOOLS = frozenset({"@spawn", "@finish"})
"""Names for agent actions that are not tool calls."""

_SCHEMA_KEYS = ("inputSchema", "input_schema", "parameters")
_ACCEPTED_FORMS = "neither an MCP `tools/list` response nor a list of functions for a model"


@dataclass(frozen=True)
class ToolCatalog:
    """The argument types of known tools, the policy files they apply to, and their source.

    Tools have their own names here, without a server. `servers` are the tools of each, if others
    exist that are not known.
    """

    argument_types: dict[str, Type]
    policy_files: frozenset[str]
    source_file: InputFile
    servers: dict[str, frozenset[str]] | None = None

    @property
    def title(self) -> str:
        """Where the tools are listed, in messages."""
        return "`schemas`" if self.servers is None else f"`{self.source_file.display_name}`"

    def may_exist(self, item: str) -> bool:
        """Whether a selector item may match a tool."""
        if self.servers is None:
            return bool(self.matching_tools(item))
        if "*" in item or "?" in item:
            return True
        tool, server, _ = parse_tool_name(item)
        return server not in self.servers or tool in self.servers[server]

    def known_names(self, item: str) -> frozenset[str]:
        """Return the names of tools that may have been meant."""
        if self.servers is None:
            return self.name_type.members
        server = parse_tool_name(item).server
        return frozenset(join_tool_name(tool, server) for tool in self.servers.get(server, ()))

    @cached_property
    def name_type(self) -> EnumType:
        """The type of `call.tool`."""
        return enum_of("tool", PSEUDO_TOOLS | self.argument_types.keys())

    def matching_tools(self, item: str) -> frozenset[str]:
        """Return the known tools that a selector item matches."""
        return frozenset(filter(compile_glob(short_tool_glob(item)), self.name_type.members))

    def arguments_of(self, items: Iterable[str]) -> Type:
        """Return the type of `call.args` for the tools that selector items match."""
        items = [*items]
        if self.servers is not None and not all(
            parse_tool_name(item).tool in self.argument_types for item in items
        ):
            return ANY_ARGUMENTS
        found = [
            self.argument_types.get(name, ANY_ARGUMENTS)
            for item in items
            for name in sorted(self.matching_tools(item))
        ]
        return union_arguments(found) if found else ANY_ARGUMENTS

    def arguments_at(self, path: Path, merged: MergedPolicy) -> Type:
        """Return the type of `call.args` in the expression or message at `path`."""
        return self.arguments_of(_selected_tools(path, merged))

    def refine_declarations(
        self, merged: MergedPolicy, path: Path, declarations: Declarations
    ) -> Declarations:
        """Return the declarations for the expression at `path`, with the tools' types."""
        call = declarations.variables.get("call")
        if not isinstance(call, RecordType) or merged.origin(path) not in self.policy_files:
            return declarations
        fields = {**call.fields, "args": self.arguments_at(path, merged)}
        if self.servers is not None:
            typed = record(fields, call.optional, call.name)
            return Declarations({**declarations.variables, "call": typed}, declarations.functions)
        fields["tool"] = self.name_type
        functions = [
            msgspec.structs.replace(one, parameters=(self.name_type,))
            if one.name == "count"
            else one
            for one in declarations.functions
        ]
        typed = record(fields, call.optional, call.name)
        return Declarations({**declarations.variables, "call": typed}, functions)


def read_tools(merged: MergedPolicy) -> tuple[ToolCatalog | None, list[Diagnostic]]:
    """Read the policy's `schemas`; return None if there is none or it is invalid."""
    named = merged.tree.get("schemas")
    if not isinstance(named, ScalarNode):
        return None, []
    found = read_sibling_file(named)
    if isinstance(found, Diagnostic):
        return None, [found]
    file, data = found
    source, root, errors = parse(data, file.display_name)
    if root is None:
        return None, errors
    types: dict[str, Type] = {}
    for tool in _tool_definitions(root, errors):
        _add_tool(tool, types, errors)
    if not types and not errors:
        errors.append(
            source.diagnostic("tools/form", "this file defines no tools", first_line_span(root))
        )
    order = list(merged.sources)
    files = frozenset(order[order.index(named.source.file) :])
    return (None if errors else ToolCatalog(types, files, file)), errors


def read_pinned_schemas(pinned: PinnedTools, merged: MergedPolicy) -> ToolCatalog:
    """Return the tools that a lock pins; a schema that cannot be read leaves arguments open."""
    types: dict[str, Type] = {}
    for server in pinned.lock.servers.values():
        for name, tool in server.tools.items():
            schema = parse(json.dumps(tool.definition.get("inputSchema", True)), "").root
            accepted = ANY_ARGUMENTS if schema is None else argument_type(schema)[0]
            types[name] = union_arguments([types[name], accepted]) if name in types else accepted
    order = list(merged.sources)
    files = frozenset(order[order.index(merged.tree.key_node("pins").source.file) :])
    servers = {name: frozenset(server.tools) for name, server in pinned.lock.servers.items()}
    return ToolCatalog(types, files, pinned.file, servers)


def _tool_definitions(
    node: Node, errors: list[Diagnostic], *, inside: bool = False
) -> Iterator[MappingNode]:
    """Yield the tool definitions of any form; `inside` a list of several."""
    if isinstance(node, MappingNode):
        result = node.get("result")
        response = result if isinstance(result, MappingNode) else node
        listed = response.get("tools")
        servers = node.get("servers")
        if isinstance(servers, MappingNode) and "policyguard" in node:
            yield from _locked_tools(servers)
            return
        more = response.get("nextCursor")
        if isinstance(more, ScalarNode) and more.value is not None:
            key = response.key_node("nextCursor").span
            message = "this is only one page of the response; more tools follow"
            hint = "fetch all pages, and put them into a list"
            errors.append(node.source.diagnostic("tools/incomplete", message, key, hint=hint))
        if isinstance(listed, SequenceNode):
            yield from _listed_tools(listed, errors)
            return
        if inside:
            yield node
            return
    elif isinstance(node, SequenceNode) and not inside:
        for item in node.items:
            yield from _tool_definitions(item, errors, inside=True)
        return
    errors.append(
        node.source.diagnostic("tools/form", f"this is {_ACCEPTED_FORMS}", first_line_span(node))
    )


def _locked_tools(servers: MappingNode) -> Iterator[MappingNode]:
    """Yield the tools of a lock, each with its name."""
    for _, server in servers.entries:
        tools = server.get("tools") if isinstance(server, MappingNode) else None
        for key, tool in tools.entries if isinstance(tools, MappingNode) else ():
            definition = tool.get("definition") if isinstance(tool, MappingNode) else None
            if isinstance(definition, MappingNode):
                name = ScalarNode(key.source, key.start, key.end, '"', "name", "name")
                yield definition.with_entries([*definition.entries, (name, key)])


def _listed_tools(listed: SequenceNode, errors: list[Diagnostic]) -> Iterator[MappingNode]:
    for item in listed.items:
        if isinstance(item, MappingNode):
            yield item
        else:
            errors.append(
                item.source.diagnostic("tools/form", "this is not a tool", first_line_span(item))
            )


def _add_tool(tool: MappingNode, types: dict[str, Type], errors: list[Diagnostic]) -> None:
    inner = tool.get("function")
    described = inner if isinstance(inner, MappingNode) else tool
    name = described.get("name")
    kind = tool.get("type")
    if not isinstance(name, ScalarNode) or not isinstance(name.value, str) or not name.text:
        if isinstance(kind, ScalarNode) and kind.text != "function":
            return  # a tool run by the model's provider
        message = "this tool has no `name`"
        errors.append(tool.source.diagnostic("tools/form", message, first_line_span(tool)))
        return
    schema = next(
        (found for key in _SCHEMA_KEYS if (found := described.get(key)) is not None), None
    )
    accepted, malformed = (ANY_ARGUMENTS, []) if schema is None else argument_type(schema)
    errors += malformed
    own_name = parse_tool_name(name.text).tool
    if own_name in types:  # two servers may have a tool of one name
        accepted = union_arguments([types[own_name], accepted])
    types[own_name] = accepted


def _selected_tools(path: Path, merged: MergedPolicy) -> list[str]:
    """Return the tool globs of the entry around a value; empty if it covers all tools."""
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

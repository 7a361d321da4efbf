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
from policyguard.cel.types import NameType, RecordType, Type, name_of, record
from policyguard.compiler.inputs import File
from policyguard.compiler.layers import Layered
from policyguard.compiler.load import read_beside
from policyguard.compiler.selectors import glob
from policyguard.compiler.tool_types import OPEN, arguments, together
from policyguard.compiler.validate import first_line
from policyguard.engines.json_source import parse
from policyguard.engines.yaml_tree import Mapping, Node, Path, Scalar, Sequence, child
from policyguard.model.diagnostic import Diagnostic, Span

PSEUDO = frozenset({"@spawn", "@finish"})
"""What adapters call what an agent does besides calling tools."""

_SCHEMAS = ("inputSchema", "input_schema", "parameters")
_FORMS = "neither an MCP `tools/list` answer nor a list of functions as it goes to a model"


@dataclass(frozen=True)
class Tools:
    """The type of each tool's arguments, and in which files of the policy these tools are known.

    `described` is the file that says so.
    """

    types: dict[str, Type]
    files: frozenset[str]
    described: File

    @cached_property
    def names(self) -> NameType:
        """The names that `call.tool` may have."""
        return name_of("tool", PSEUDO | self.types.keys())

    def matching(self, item: str) -> frozenset[str]:
        """The known tools that an item of a selector names."""
        return frozenset(filter(glob(item), self.names.known))

    def taken(self, items: Iterable[str]) -> Type:
        """The type of `call.args` for calls of the tools that a selector names."""
        found = [
            self.types.get(name, OPEN) for item in items for name in sorted(self.matching(item))
        ]
        return together(found) if found else OPEN

    def arguments_at(self, path: Path, layered: Layered) -> Type:
        """The type of `call.args` in an expression, or a message, of the merged policy."""
        return self.taken(_selected(path, layered))

    def declared(self, path: Path, layered: Layered, declarations: Declarations) -> Declarations:
        """What an expression at `path` may name, where these tools are known."""
        call = declarations.variables.get("call")
        if not isinstance(call, RecordType) or layered.origin(path) not in self.files:
            return declarations
        fields = {**call.fields, "tool": self.names, "args": self.arguments_at(path, layered)}
        functions = [
            msgspec.structs.replace(one, parameters=(self.names,)) if one.name == "count" else one
            for one in declarations.functions
        ]
        typed = record(fields, call.optional, call.name)
        return Declarations({**declarations.variables, "call": typed}, functions)


def read_tools(layered: Layered) -> tuple[Tools | None, list[Diagnostic]]:
    """The tools that a policy's `schemas` describe; None where it has none, or they are broken."""
    named = layered.tree.get("schemas")
    if not isinstance(named, Scalar):
        return None, []
    found = read_beside(named)
    if isinstance(found, Diagnostic):
        return None, [found]
    file, data = found
    source, root, wrong = parse(data, file.shown)
    if root is None:
        return None, wrong
    types: dict[str, Type] = {}
    for tool in _tools(root, wrong):
        _add(tool, types, wrong)
    if not types and not wrong:
        wrong.append(source.diagnostic("tools/form", "there is no tool in this file", _first(root)))
    order = list(layered.sources)
    files = frozenset(order[order.index(named.source.file) :])
    return (None if wrong else Tools(types, files, file)), wrong


def _tools(node: Node, wrong: list[Diagnostic], *, inside: bool = False) -> Iterator[Mapping]:
    """What describes a tool, in any of the forms; `inside` a list of several."""
    if isinstance(node, Mapping):
        around = node.get("result")
        answer = around if isinstance(around, Mapping) else node
        listed = answer.get("tools")
        more = answer.get("nextCursor")
        if isinstance(more, Scalar) and more.value is not None:
            key = answer.key("nextCursor").span
            message = "this is one page of the answer: more tools follow"
            hint = "ask for all pages, and put them into a list"
            wrong.append(node.source.diagnostic("tools/incomplete", message, key, hint=hint))
        if isinstance(listed, Sequence):
            yield from _each(listed, wrong)
            return
        if inside:
            yield node
            return
    elif isinstance(node, Sequence) and not inside:
        for item in node.items:
            yield from _tools(item, wrong, inside=True)
        return
    wrong.append(node.source.diagnostic("tools/form", f"this is {_FORMS}", _first(node)))


def _each(listed: Sequence, wrong: list[Diagnostic]) -> Iterator[Mapping]:
    for item in listed.items:
        if isinstance(item, Mapping):
            yield item
        else:
            wrong.append(item.source.diagnostic("tools/form", "this is not a tool", _first(item)))


def _add(tool: Mapping, types: dict[str, Type], wrong: list[Diagnostic]) -> None:
    inner = tool.get("function")
    described = inner if isinstance(inner, Mapping) else tool
    name = described.get("name")
    kind = tool.get("type")
    if not isinstance(name, Scalar) or not isinstance(name.value, str) or not name.text:
        if isinstance(kind, Scalar) and kind.text != "function":
            return  # a tool that the model's provider runs
        message = "a tool has a `name`"
        wrong.append(tool.source.diagnostic("tools/form", message, _first(tool)))
        return
    schema = next((found for key in _SCHEMAS if (found := described.get(key)) is not None), None)
    taken, malformed = (OPEN, []) if schema is None else arguments(schema)
    wrong += malformed
    if name.text in types:  # two servers may have a tool of one name
        taken = together([types[name.text], taken])
    types[name.text] = taken


def _selected(path: Path, layered: Layered) -> list[str]:
    """The globs of the tools that the entry around a value is about; none where it is open."""
    if path[:2] == ("limits", "tools") and len(path) > 2:
        return [str(path[2])]
    node: Node | None = layered.tree
    found: list[str] = []
    for step in path:
        node = child(node, step) if node is not None else None
        tools = node.get("tools") if isinstance(node, Mapping) else None
        if isinstance(tools, Sequence):
            found = [item.text for item in tools.items if isinstance(item, Scalar)]
    return found


def _first(node: Node) -> Span:
    return first_line(node.source, node.span)

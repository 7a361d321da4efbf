"""Convert a tool's JSON Schema to the type of its arguments.

This reads only the names and types of arguments, which an expression can get wrong; whatever the
schema leaves open stays open. Required arguments may still be absent, because nothing validates the
arguments that come from the model.
"""

from __future__ import annotations

from urllib.parse import unquote

from policyguard.cel.types.types import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    RecordType,
    Type,
    enum_of,
    join_all_types,
    list_of,
    map_of,
    record,
)
from policyguard.engines.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode, get_child
from policyguard.model.diagnostic import Diagnostic, quote_text

ANY_ARGUMENTS = map_of(STRING, DYN)
"""The arguments of an unknown tool."""

_MAX_DEPTH = 32
"""How deep to look into an argument, including references."""

_SCALAR_TYPES = {"string": STRING, "integer": INT, "number": DOUBLE, "boolean": BOOL, "null": NULL}
_KEYWORD_FORMS: dict[str, tuple[type, str]] = {
    "properties": (MappingNode, "a map"),
    "required": (SequenceNode, "a list"),
    "enum": (SequenceNode, "a list"),
    "anyOf": (SequenceNode, "a list"),
    "oneOf": (SequenceNode, "a list"),
    "allOf": (SequenceNode, "a list"),
    "$ref": (ScalarNode, "a text"),
}
_OPENING_KEYWORDS = (
    "patternProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "dependentSchemas",
    "$ref",
)
"""Keywords that may add properties to an object."""


def argument_type(schema: Node) -> tuple[Type, list[Diagnostic]]:
    """Return the type of `call.args` for a tool with this schema, and the schema's errors."""
    reader = _SchemaReader(schema)
    found = reader.read_type(schema, "call.args")
    return (found if found.kind == "map" else ANY_ARGUMENTS), reader.diagnostics


def union_arguments(types: list[Type]) -> Type:
    """Return the type of arguments that have any of `types`.

    An argument that only some of them have is optional.
    """
    known = [found for found in types if isinstance(found, RecordType)]
    if len(known) < len(types):
        return ANY_ARGUMENTS if len(types) > 1 else types[0]
    fields: dict[str, list[Type]] = {}
    for found in known:
        for name, one in found.fields.items():
            fields.setdefault(name, []).append(one)
    everywhere = {name for name, found in fields.items() if len(found) == len(known)}
    promised = everywhere.intersection(*(found.unverified for found in known))
    return record(
        {name: join_all_types(found) for name, found in fields.items()},
        optional=frozenset(fields.keys() - promised),
        name="call.args",
        unverified=frozenset(promised),
    )


class _SchemaReader:
    def __init__(self, root: Node) -> None:
        self._root = root
        self._references: dict[str, Type] = {}
        self._depth = 0
        self.diagnostics: list[Diagnostic] = []

    def read_type(self, schema: Node | None, name: str) -> Type:
        """Return the type that `schema` describes, named `name` in messages."""
        if schema is None or (isinstance(schema, ScalarNode) and isinstance(schema.value, bool)):
            return DYN
        if not isinstance(schema, MappingNode):
            self._report(schema, "a schema must be a map")
            return DYN
        for key, (kind, words) in _KEYWORD_FORMS.items():
            node = schema.get(key)
            if node is not None and not isinstance(node, kind):
                self._report(node, f"`{key}` must be {words}")
                return DYN
        self._depth += 1
        found = self._read_schema(schema, name) if self._depth <= _MAX_DEPTH else DYN
        self._depth -= 1
        return found

    def _read_schema(self, schema: MappingNode, name: str) -> Type:
        reference = schema.get("$ref")
        if isinstance(reference, ScalarNode):
            return self._follow_reference(reference.text, name)
        values = [schema.get("const")] if "const" in schema else _items(schema.get("enum"))
        if values:
            return _enum_type(values)
        for key in ("anyOf", "oneOf", "allOf"):
            branches = _items(schema.get(key))
            if branches and (key != "allOf" or len(branches) == 1) and "properties" not in schema:
                return join_all_types([self.read_type(branch, name) for branch in branches])
        types = schema.get("type")
        if types is None:
            return self._read_object(schema, name) if "properties" in schema else DYN
        kinds = types.items if isinstance(types, SequenceNode) else (types,)
        return join_all_types([self._read_kind(kind, schema, name) for kind in kinds])

    def _read_kind(self, kind: Node, schema: MappingNode, name: str) -> Type:
        word = kind.value if isinstance(kind, ScalarNode) else None
        if word == "array":
            items = schema.get("items")
            several = isinstance(items, SequenceNode)  # one for each index
            return list_of(DYN if several else self.read_type(items, f"{name}[…]"))
        if word == "object":
            return self._read_object(schema, name)
        if isinstance(word, str) and word in _SCALAR_TYPES:
            return _SCALAR_TYPES[word]
        shown = quote_text(kind.text) if isinstance(kind, ScalarNode) else "this"
        self._report(kind, f"unknown JSON Schema type {shown}")
        return DYN

    def _read_object(self, schema: MappingNode, name: str) -> Type:
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if not isinstance(properties, MappingNode):
            nothing = isinstance(more, ScalarNode) and more.value is False
            return record({}, name=name) if nothing else map_of(STRING, self.read_type(more, name))
        fields = {
            key.text: self.read_type(value, f"{name}.{key.text}")
            for key, value in properties.entries
        }
        closed = more is None or (isinstance(more, ScalarNode) and more.value is False)
        if not closed or any(key in schema for key in _OPENING_KEYWORDS):
            return ANY_ARGUMENTS
        required = {
            item.text for item in _items(schema.get("required")) if isinstance(item, ScalarNode)
        }
        promised = frozenset(fields.keys() & required)
        return record(fields, frozenset(fields.keys() - promised), name, promised)

    def _follow_reference(self, reference: str, name: str) -> Type:
        """Return the type behind a reference in the same schema; a recursive one is `dyn`."""
        if reference not in self._references:
            self._references[reference] = DYN
            node: Node | None = self._root if reference.startswith("#") else None
            for step in reference[1:].split("/")[1:]:
                key = unquote(step).replace("~1", "/").replace("~0", "~")
                is_index = isinstance(node, SequenceNode) and key.isdecimal()
                node = get_child(node, int(key) if is_index else key) if node is not None else None
            self._references[reference] = self.read_type(node, name)
        return self._references[reference]

    def _report(self, node: Node, message: str) -> None:
        self.diagnostics.append(node.source.diagnostic("tools/malformed", message, node.span))


def _enum_type(values: list[Node | None]) -> Type:
    """Return the type of these values; texts become an enumeration."""
    plain = [value.value for value in values if isinstance(value, ScalarNode)]
    if len(plain) < len(values):
        return DYN
    texts = {value for value in plain if isinstance(value, str)}
    if len(texts) == len(plain):
        return enum_of("value", frozenset(texts))
    kinds = {bool: BOOL, int: INT, float: DOUBLE, str: STRING}
    return join_all_types([kinds.get(type(value), DYN) for value in plain])


def _items(node: Node | None) -> list[Node | None]:
    return list(node.items) if isinstance(node, SequenceNode) else []

"""A tool's JSON Schema as the type of its arguments.

Only what an expression can be wrong about is read: which arguments there are, and of which kinds.
Where a schema leaves something open, the type does too. What it asks for, a call may still lack:
the arguments come from a model, and nobody has held them against the schema.
"""

from __future__ import annotations

from urllib.parse import unquote

from policyguard.cel.types import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    RecordType,
    Type,
    join_all,
    list_of,
    map_of,
    name_of,
    record,
)
from policyguard.engines.yaml_tree import Mapping, Node, Scalar, Sequence, child
from policyguard.model.diagnostic import Diagnostic, quoted

OPEN = map_of(STRING, DYN)
"""The arguments of a tool of which nothing is known."""

_DEEPEST = 32
"""How deep an argument is looked into, references followed."""

_SIMPLE = {"string": STRING, "integer": INT, "number": DOUBLE, "boolean": BOOL, "null": NULL}
_KINDS: dict[str, tuple[type, str]] = {
    "properties": (Mapping, "a map"),
    "required": (Sequence, "a list"),
    "enum": (Sequence, "a list"),
    "anyOf": (Sequence, "a list"),
    "oneOf": (Sequence, "a list"),
    "allOf": (Sequence, "a list"),
    "$ref": (Scalar, "a text"),
}
_MORE = ("patternProperties", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "$ref")
"""Keys beside `properties` through which an object may have further ones."""


def arguments(schema: Node) -> tuple[Type, list[Diagnostic]]:
    """The type of `call.args` for a tool with this schema, and what is malformed in it."""
    reader = _Reader(schema)
    found = reader.type(schema, "call.args")
    return (found if found.kind == "map" else OPEN), reader.wrong


def together(types: list[Type]) -> Type:
    """The type of arguments that are one tool's or another's.

    What none of them has is no argument; what only some have may be absent.
    """
    known = [found for found in types if isinstance(found, RecordType)]
    if len(known) < len(types):
        return OPEN if len(types) > 1 else types[0]
    fields: dict[str, list[Type]] = {}
    for found in known:
        for name, one in found.fields.items():
            fields.setdefault(name, []).append(one)
    everywhere = {name for name, found in fields.items() if len(found) == len(known)}
    promised = everywhere.intersection(*(found.promised for found in known))
    return record(
        {name: join_all(found) for name, found in fields.items()},
        optional=frozenset(fields.keys() - promised),
        name="call.args",
        promised=frozenset(promised),
    )


class _Reader:
    def __init__(self, root: Node) -> None:
        self._root = root
        self._referred: dict[str, Type] = {}
        self._depth = 0
        self.wrong: list[Diagnostic] = []

    def type(self, schema: Node | None, name: str) -> Type:
        """The type of what `schema` describes; `name` is how messages call it."""
        if schema is None or (isinstance(schema, Scalar) and isinstance(schema.value, bool)):
            return DYN
        if not isinstance(schema, Mapping):
            self._malformed(schema, "a schema is a map")
            return DYN
        for key, (kind, words) in _KINDS.items():
            node = schema.get(key)
            if node is not None and not isinstance(node, kind):
                self._malformed(node, f"`{key}` must be {words}")
                return DYN
        self._depth += 1
        found = self._of(schema, name) if self._depth <= _DEEPEST else DYN
        self._depth -= 1
        return found

    def _of(self, schema: Mapping, name: str) -> Type:
        reference = schema.get("$ref")
        if isinstance(reference, Scalar):
            return self._follow(reference.text, name)
        values = [schema.get("const")] if "const" in schema else _items(schema.get("enum"))
        if values:
            return _one_of(values)
        for key in ("anyOf", "oneOf", "allOf"):
            branches = _items(schema.get(key))
            if branches and (key != "allOf" or len(branches) == 1) and "properties" not in schema:
                return join_all([self.type(branch, name) for branch in branches])
        given = schema.get("type")
        if given is None:
            return self._object(schema, name) if "properties" in schema else DYN
        kinds = given.items if isinstance(given, Sequence) else (given,)
        return join_all([self._kind(kind, schema, name) for kind in kinds])

    def _kind(self, kind: Node, schema: Mapping, name: str) -> Type:
        word = kind.value if isinstance(kind, Scalar) else None
        if word == "array":
            items = schema.get("items")
            several = isinstance(items, Sequence)  # one for each place
            return list_of(DYN if several else self.type(items, f"{name}[…]"))
        if word == "object":
            return self._object(schema, name)
        if isinstance(word, str) and word in _SIMPLE:
            return _SIMPLE[word]
        shown = quoted(kind.text) if isinstance(kind, Scalar) else "this"
        self._malformed(kind, f"JSON Schema has no type {shown}")
        return DYN

    def _object(self, schema: Mapping, name: str) -> Type:
        given, more = schema.get("properties"), schema.get("additionalProperties")
        if not isinstance(given, Mapping):
            nothing = isinstance(more, Scalar) and more.value is False
            return record({}, name=name) if nothing else map_of(STRING, self.type(more, name))
        fields = {key.text: self.type(value, f"{name}.{key.text}") for key, value in given.entries}
        closed = more is None or (isinstance(more, Scalar) and more.value is False)
        if not closed or any(key in schema for key in _MORE):
            return OPEN
        required = {
            item.text for item in _items(schema.get("required")) if isinstance(item, Scalar)
        }
        promised = frozenset(fields.keys() & required)
        return record(fields, frozenset(fields.keys() - promised), name, promised)

    def _follow(self, reference: str, name: str) -> Type:
        """What a reference means, inside of the same schema; one that goes round is open."""
        if reference not in self._referred:
            self._referred[reference] = DYN
            node: Node | None = self._root if reference.startswith("#") else None
            for step in reference[1:].split("/")[1:]:
                key = unquote(step).replace("~1", "/").replace("~0", "~")
                place = int(key) if isinstance(node, Sequence) and key.isdecimal() else key
                node = child(node, place) if node is not None else None
            self._referred[reference] = self.type(node, name)
        return self._referred[reference]

    def _malformed(self, node: Node, message: str) -> None:
        self.wrong.append(node.source.diagnostic("tools/malformed", message, node.span))


def _one_of(values: list[Node | None]) -> Type:
    """The type of one of these values; of texts they are the only ones."""
    plain = [value.value for value in values if isinstance(value, Scalar)]
    if len(plain) < len(values):
        return DYN
    texts = {value for value in plain if isinstance(value, str)}
    if len(texts) == len(plain):
        return name_of("value", frozenset(texts))
    kinds = {bool: BOOL, int: INT, float: DOUBLE, str: STRING}
    return join_all([kinds.get(type(value), DYN) for value in plain])


def _items(node: Node | None) -> list[Node | None]:
    return list(node.items) if isinstance(node, Sequence) else []

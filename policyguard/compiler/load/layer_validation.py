"""Validate one layer against the schema, and remove its broken parts so that the rest can go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.compiler.load import language_version, schema
from policyguard.compiler.load.schema_messages import describe_problem
from policyguard.engines.json_schema import ValidationProblem
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    Path,
    ScalarNode,
    SequenceNode,
    descend,
    remove_paths,
    to_outline,
    to_plain,
)
from policyguard.model.diagnostic import Diagnostic, Edit, Span

_KEYWORDS_AT_KEY = {
    "additionalProperties",
    "propertyNames",
    "required",
    "dependentRequired",
    "not",
    "minProperties",
}
"""Keywords reported at a key: the wrong one, or that of the entry."""

_CODES_AT_KEY = {"schema/missing-key", "schema/conflict"}
"""The same by code, for keywords with several meanings."""


class ValidatedLayer(NamedTuple):
    """A layer without its broken parts, the diagnostics, and the paths of the removed parts."""

    tree: MappingNode | None
    diagnostics: list[Diagnostic]
    removed: frozenset[Path]


def validate_layer(root: Node, reported: Iterable[Diagnostic] = ()) -> ValidatedLayer:
    """Validate a layer's tree against the language, and rename its deprecated keys.

    Spans that have a diagnostic in `reported` are not reported again. The tree is None if nothing
    usable is left.
    """
    file = root.source.file
    reported_spans = frozenset(each.span for each in reported if each.span.file == file)
    is_pack = file.startswith(PACK_PREFIX)
    return (_validate_pack_file if is_pack else _validate)(root, reported_spans)


def _validate(root: Node, reported_spans: frozenset[Span]) -> ValidatedLayer:
    root, deprecated = replace_deprecated(root)
    problems = schema.validator().validate(to_plain(root))
    unsupported = list(find_unsupported(root))
    invalid = [diagnose(root, problem) for problem in problems]
    diagnostics = [diagnostic for diagnostic in invalid if diagnostic.span not in reported_spans]
    diagnostics += [diagnostic for _, diagnostic in unsupported]
    diagnostics += deprecated
    tree, removed = prune(root, problems, (path for path, _ in unsupported))
    return ValidatedLayer(tree, diagnostics, removed)


_validate_pack_file = lru_cache(maxsize=64)(_validate)
"""By the tree itself, which the loader keeps for the files of packs."""


def find_span(root: Node, path: Path, *, key: bool = False) -> Span:
    """Return the span of the value at `path`, or of its key.

    For a block list or map, return its first line only.
    """
    if key and path and isinstance(path[-1], str):
        parent, rest = descend(root, path[:-1])
        if not rest and isinstance(parent, MappingNode) and path[-1] in parent:
            return parent.key_node(path[-1]).span
    node, _ = descend(root, path)
    return first_line_span(node)


def first_line_span(node: Node) -> Span:
    """Return the part of a node's span in its first line."""
    span = node.span
    if span.line == span.end_line:
        return span
    end = len(node.source.lines[span.line - 1].rstrip()) + 1
    return Span(span.file, span.line, span.column, span.line, max(end, span.column))


def diagnose(root: Node, problem: ValidationProblem) -> Diagnostic:
    """Turn a schema violation into a diagnostic with its place."""
    node, rest = descend(root, problem.path)
    message = describe_problem(problem, None if rest else node)
    at_key = problem.keyword in _KEYWORDS_AT_KEY or message.code in _CODES_AT_KEY
    span = find_span(root, problem.path, key=at_key)
    edits = () if message.replacement is None else (Edit(node.span, message.replacement),)
    return node.source.diagnostic(
        message.code, message.message, span, hint=message.hint, edits=edits
    )


def prune(
    root: Node, problems: Iterable[ValidationProblem], others: Iterable[Path] = ()
) -> tuple[MappingNode | None, frozenset[Path]]:
    """Remove the values of `problems` and `others`, and everything invalid without them.

    Return the tree and the removed paths. Keys missing from the root stay missing; the tree is
    None if the root is not a map.
    """
    tree = root
    invalid = frozenset(problem.path for problem in problems) | frozenset(others)
    removed = invalid
    while isinstance(tree, MappingNode) and invalid - {()}:
        tree = remove_paths(tree, invalid)
        problems = schema.validator().validate(to_plain(tree))
        invalid = frozenset(problem.path for problem in problems)
        removed |= invalid
    return (tree if isinstance(tree, MappingNode) else None), removed - {()}


def find_unsupported(node: Node) -> Iterator[tuple[Path, Diagnostic]]:
    """Yield the keys of a policy's tree that are not implemented yet, outermost only."""
    for path, key, shape in _iter_keys(node, schema.document(), ()):
        if _is_unsupported(shape):
            message = f"`{key.text}` is not implemented yet"
            hint = "remove it, or upgrade to a version that supports it"
            yield path, key.source.diagnostic("schema/unsupported", message, key.span, hint=hint)


def replace_deprecated(root: Node) -> tuple[Node, list[Diagnostic]]:
    """Warn about each deprecated key, and rename those with a new name (`x-renamed`)."""
    names: dict[Path, str] = {}
    warnings = []
    for path, key, shape in _iter_keys(root, schema.document(), ()):
        if not shape.get("deprecated"):
            continue
        hint = shape.get("x-hint")
        edits: tuple[Edit, ...] = ()
        parent, _ = descend(root, path[:-1])
        name = shape.get("x-renamed")
        if name is not None:
            hint = f"write `{name}`"
            if isinstance(parent, MappingNode) and name not in parent:
                names[path] = name
                edits = (Edit(key.span, name),)
        message = f"`{key.text}` is deprecated; a later version will refuse it"
        warnings.append(
            key.source.diagnostic(
                "schema/deprecated", message, key.span, hint=hint, severity="warning", edits=edits
            )
        )
    return _rename_keys(root, names, ()), warnings


def _rename_keys(node: Node, names: Mapping[Path, str], path: Path) -> Node:
    if not names or isinstance(node, ScalarNode):
        return node
    if isinstance(node, SequenceNode):
        return node.with_items(
            _rename_keys(item, names, (*path, index)) for index, item in enumerate(node.items)
        )
    entries = []
    for key, value in node.entries:
        inner = (*path, key.text)
        name = names.get(inner)
        new_key = key if name is None else replace(key, text=name, value=name)
        entries.append((new_key, _rename_keys(value, names, inner)))
    return node.with_entries(entries)


def _iter_keys(
    node: Node, around: schema.Subschema, path: Path
) -> Iterator[tuple[Path, ScalarNode, schema.Subschema]]:
    """Yield each key that the schema knows, with its path and the schema of its value.

    Skip everything below an unsupported key.
    """
    shape = schema.resolve_for(around, to_outline(node))
    if isinstance(node, MappingNode):
        for key, value in node.entries:
            child = schema.child_schema(shape, key.text)
            value_shape = schema.resolve_for(child, to_outline(value))
            yield (*path, key.text), key, value_shape
            if not _is_unsupported(value_shape):
                yield from _iter_keys(value, child, (*path, key.text))
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.items):
            yield from _iter_keys(item, schema.child_schema(shape, index), (*path, index))


def _is_unsupported(shape: schema.Subschema) -> bool:
    step = shape.get("x-step", language_version.SUPPORTED_STEP)
    return bool(step != "lint" and step > language_version.SUPPORTED_STEP)

"""Check one layer against the schema, and cut out what is broken so that the rest can go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from policyguard.compiler.load import language_version, schema
from policyguard.compiler.load.schema_messages import describe_problem
from policyguard.engines.json_schema import ValidationProblem
from policyguard.engines.source import Source
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    Path,
    ScalarNode,
    SequenceNode,
    descend,
    remove_paths,
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
"""Keywords whose caret stands at a key: the one at fault, or that of the entry at fault."""

_CODES_AT_KEY = {"schema/missing-key", "schema/conflict"}
"""The same by code, for keywords with several meanings."""


class ValidatedLayer(NamedTuple):
    """A layer without its broken parts, what was wrong with it, and the paths cut out."""

    tree: MappingNode | None
    diagnostics: list[Diagnostic]
    removed: frozenset[Path]


def validate_layer(root: Node, reported: Iterable[Diagnostic] = ()) -> ValidatedLayer:
    """Check a layer's tree against the language.

    Places that one of the diagnostics in `known` is already about are not reported again. The
    tree is None where nothing is left to go on with.
    """
    reported_spans = {diagnostic.span for diagnostic in reported}
    problems = schema.validator().validate(to_plain(root))
    unsupported = list(find_unsupported(root))
    found = [diagnose(root, problem) for problem in problems]
    diagnostics = [diagnostic for diagnostic in found if diagnostic.span not in reported_spans]
    diagnostics += [diagnostic for _, diagnostic in unsupported]
    diagnostics += find_deprecated(root)
    tree, cut = prune(root, problems, (path for path, _ in unsupported))
    return ValidatedLayer(tree, diagnostics, cut)


def find_span(root: Node, path: Path, *, key: bool = False) -> Span:
    """Where the value at `path` stands, or with `key` its key.

    Of a block list or map only the first line: the caret shows where, the lines below show what.
    """
    if key and path and isinstance(path[-1], str):
        parent, rest = descend(root, path[:-1])
        if not rest and isinstance(parent, MappingNode) and path[-1] in parent:
            return parent.key_node(path[-1]).span
    node, _ = descend(root, path)
    return first_line(node.source, node.span)


def first_line(source: Source, span: Span) -> Span:
    """The part of `span` in its first line."""
    if span.line == span.end_line:
        return span
    end = len(source.lines[span.line - 1].rstrip()) + 1
    return Span(span.file, span.line, span.column, span.line, max(end, span.column))


def diagnose(root: Node, problem: ValidationProblem) -> Diagnostic:
    """Put what a schema has against a value of the tree into words, at its place."""
    node, rest = descend(root, problem.path)
    found = describe_problem(problem, None if rest else node)
    span = find_span(
        root, problem.path, key=problem.keyword in _KEYWORDS_AT_KEY or found.code in _CODES_AT_KEY
    )
    edits = () if found.replacement is None else (Edit(node.span, found.replacement),)
    return node.source.diagnostic(found.code, found.message, span, hint=found.hint, edits=edits)


def prune(
    root: Node, problems: Iterable[ValidationProblem], others: Iterable[Path] = ()
) -> tuple[MappingNode | None, frozenset[Path]]:
    """Cut out what `problems` and `others` are about, and whatever is broken without it.

    Also the paths that were cut. What the root itself lacks is left lacking; None where the root
    is no map.
    """
    tree = root
    drop = frozenset(problem.path for problem in problems) | frozenset(others)
    gone = drop
    while isinstance(tree, MappingNode) and drop - {()}:
        tree = remove_paths(tree, drop)
        drop = frozenset(problem.path for problem in schema.validator().validate(to_plain(tree)))
        gone |= drop
    return (tree if isinstance(tree, MappingNode) else None), gone - {()}


def find_unsupported(node: Node) -> Iterator[tuple[Path, Diagnostic]]:
    """Every part of a policy's tree that comes to life with a later step, with its path.

    Of a part inside of another one only the outer is named.
    """
    for path, key, shape in _iter_keys(node, schema.document(), ()):
        if _is_unsupported(shape):
            message = (
                f"`{key.text}` is part of the language but not alive in this version "
                f"(step {shape['x-step']})"
            )
            yield path, key.source.diagnostic("schema/unsupported", message, key.span)


def find_deprecated(node: Node) -> Iterator[Diagnostic]:
    """Every key that the language will drop (`deprecated` in the schema), with its `x-hint`."""
    for _, key, shape in _iter_keys(node, schema.document(), ()):
        if shape.get("deprecated"):
            message = f"`{key.text}` is deprecated: a later version of the language will refuse it"
            hint = shape.get("x-hint")
            yield key.source.diagnostic(
                "schema/deprecated", message, key.span, hint=hint, severity="warning"
            )


def _iter_keys(
    node: Node, around: schema.Subschema, path: Path
) -> Iterator[tuple[Path, ScalarNode, schema.Subschema]]:
    """Every key that the schema knows, with its path and what the schema says of its value.

    What stands inside of a part that is not alive is left out.
    """
    shape = schema.resolve_for(around, to_plain(node))
    if isinstance(node, MappingNode):
        for key, value in node.entries:
            below = schema.child_schema(shape, key.text)
            said = schema.resolve_for(below, to_plain(value))
            yield (*path, key.text), key, said
            if not _is_unsupported(said):
                yield from _iter_keys(value, below, (*path, key.text))
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.items):
            yield from _iter_keys(item, schema.child_schema(shape, index), (*path, index))


def _is_unsupported(shape: schema.Subschema) -> bool:
    step = shape.get("x-step", language_version.STEP)
    return bool(step != "lint" and step > language_version.STEP)

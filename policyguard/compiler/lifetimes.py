"""Keys whose time has not come, which are refused, and those whose time is over: a warning."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler import alive, schema
from policyguard.engines.yaml_tree import Mapping, Node, Path, Scalar, Sequence, plain
from policyguard.model.diagnostic import Diagnostic


def not_alive(node: Node) -> Iterator[tuple[Path, Diagnostic]]:
    """Every part of a policy's tree that comes to life with a later step, with its path.

    Of a part inside of another one only the outer is named.
    """
    for path, key, shape in _keys(node, schema.document(), ()):
        if _is_later(shape):
            message = (
                f"`{key.text}` is part of the language but not alive in this version "
                f"(step {shape['x-step']})"
            )
            yield path, key.source.diagnostic("schema/not-alive", message, key.span)


def deprecated(node: Node) -> Iterator[Diagnostic]:
    """Every key that the language will drop (`deprecated` in the schema), with its `x-hint`."""
    for _, key, shape in _keys(node, schema.document(), ()):
        if shape.get("deprecated"):
            message = f"`{key.text}` is deprecated: a later version of the language will refuse it"
            hint = shape.get("x-hint")
            yield key.source.diagnostic(
                "schema/deprecated", message, key.span, hint=hint, severity="warning"
            )


def _keys(
    node: Node, around: schema.Shape, path: Path
) -> Iterator[tuple[Path, Scalar, schema.Shape]]:
    """Every key that the schema knows, with its path and what the schema says of its value.

    What stands inside of a part that is not alive is left out.
    """
    shape = schema.fit(around, plain(node))
    if isinstance(node, Mapping):
        for key, value in node.entries:
            below = schema.below(shape, key.text)
            said = schema.fit(below, plain(value))
            yield (*path, key.text), key, said
            if not _is_later(said):
                yield from _keys(value, below, (*path, key.text))
    elif isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            yield from _keys(item, schema.below(shape, index), (*path, index))


def _is_later(shape: schema.Shape) -> bool:
    step = shape.get("x-step", alive.STEP)
    return bool(step != "lint" and step > alive.STEP)

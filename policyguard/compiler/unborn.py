"""The parts of a policy that are not alive in this version: they are refused, never ignored."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler import alive, schema
from policyguard.engines.yaml_tree import Mapping, Node, Path, Sequence, plain
from policyguard.model.diagnostic import Diagnostic


def not_alive(node: Node) -> Iterator[tuple[Path, Diagnostic]]:
    """Every part of a policy's tree that comes to life with a later step, with its path.

    Of a part inside of another one only the outer is named.
    """
    return _not_alive(node, schema.document(), ())


def _not_alive(node: Node, around: schema.Shape, path: Path) -> Iterator[tuple[Path, Diagnostic]]:
    shape = schema.fit(around, plain(node))
    if isinstance(node, Mapping):
        for key, value in node.entries:
            below = schema.below(shape, key.text)
            step = schema.fit(below, plain(value)).get("x-step", alive.STEP)
            if step != "lint" and step > alive.STEP:
                message = (
                    f"`{key.text}` is part of the language but not alive in this version "
                    f"(step {step})"
                )
                found = key.source.diagnostic("schema/not-alive", message, key.span)
                yield (*path, key.text), found
            else:
                yield from _not_alive(value, below, (*path, key.text))
    elif isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            yield from _not_alive(item, schema.below(shape, index), (*path, index))

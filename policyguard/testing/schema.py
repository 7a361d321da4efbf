"""The schema of test files, and their unsupported keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

from policyguard.engines.json_schema import Schema
from policyguard.engines.yaml_tree import MappingNode, Node, SequenceNode
from policyguard.model.diagnostic import Diagnostic


@cache
def document() -> dict[str, Any]:
    """Return the published schema."""
    folder = resources.files("policyguard.schemas")
    read: dict[str, Any] = json.loads(
        folder.joinpath("policy-tests.schema.json").read_text("utf-8")
    )
    return read


@cache
def checker() -> Schema:
    """Return the schema, ready for validation."""
    return Schema(document())


@cache
def unsupported_keys() -> dict[str, int]:
    """Return the unsupported keys of a step, with the step of the roadmap that adds them."""
    steps: dict[str, Any] = document()["$defs"]["step"]["properties"]
    return {key: shape["x-step"] for key, shape in steps.items() if "x-step" in shape}


def find_unsupported(root: Node) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each unsupported key of a step: it is an error, never ignored."""
    for test in _map_items(root.get("tests") if isinstance(root, MappingNode) else None):
        for step in _map_items(test.get("steps")):
            for key, _ in step.entries:
                if key.text in unsupported_keys():
                    message = f"`{key.text}` is not implemented yet"
                    yield key.source.diagnostic("schema/unsupported", message, key.span)


def _map_items(node: Node | None) -> Iterator[MappingNode]:
    """Yield the maps among the items of a list."""
    if isinstance(node, SequenceNode):
        yield from (item for item in node.items if isinstance(item, MappingNode))

"""The schema of tests files, and which of their keys are not alive yet."""

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
    """The schema as it is published."""
    folder = resources.files("policyguard.schemas")
    read: dict[str, Any] = json.loads(
        folder.joinpath("policy-tests.schema.json").read_text("utf-8")
    )
    return read


@cache
def checker() -> Schema:
    """The schema, ready to be applied."""
    return Schema(document())


@cache
def unsupported_keys() -> dict[str, int]:
    """The keys of a step that are not alive, with the step of the language that they wait for."""
    steps: dict[str, Any] = document()["$defs"]["step"]["properties"]
    return {key: shape["x-step"] for key, shape in steps.items() if "x-step" in shape}


def find_unsupported(root: Node) -> Iterator[Diagnostic]:
    """Every key of a step that is not alive: it is refused, never ignored."""
    for test in _map_items(root.get("tests") if isinstance(root, MappingNode) else None):
        for step in _map_items(test.get("steps")):
            for key, _ in step.entries:
                if key.text in unsupported_keys():
                    message = (
                        f"`{key.text}` is part of the language but not alive in this version "
                        f"(step {unsupported_keys()[key.text]})"
                    )
                    yield key.source.diagnostic("schema/unsupported", message, key.span)


def _map_items(node: Node | None) -> Iterator[MappingNode]:
    """The maps among the items of a list, where it is one."""
    if isinstance(node, SequenceNode):
        yield from (item for item in node.items if isinstance(item, MappingNode))

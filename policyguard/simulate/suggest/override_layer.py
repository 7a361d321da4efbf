"""Layers over a policy: their YAML, and the compiled result."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from policyguard.compiler import CompiledPolicy, check_tree
from policyguard.compiler.load.loader import load_layers
from policyguard.engines.yaml_source import parse
from policyguard.report.escape import for_terminal
from policyguard.report.policy.annotated import flow_yaml
from policyguard.report.replay.phrases import count
from policyguard.report.suggest.figures import SignatureProposal
from policyguard.simulate.replay import use_replay_key

FILE_NAME = "suggested.yaml"
"""The layer's file name in reports; it is resolved in the current folder."""


Entries = Mapping[tuple[str | int, ...], dict[str, Any] | list[dict[str, Any]]]
"""Entries, or lists of limits, by path."""


def render_layer(name: str, extends: Sequence[str], entries: Entries) -> str:
    """Return the text of a layer that sets these entries."""
    lines = [
        "policyguard: 1",
        f"name: {flow_yaml(replace_surrogates(name))}",
        f"extends: {flow_yaml(list(extends))}",
    ]
    tree: dict[str, Any] = {}
    for path, entry in entries.items():
        node = tree
        *parents, last = map(str, path)
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = list(map(flow_yaml, entry)) if isinstance(entry, list) else flow_yaml(entry)
    for section, value in tree.items():
        lines += ["", *_lines(section, value, "")]
    return "\n".join(lines) + "\n"


def render_signatures_layer(
    name: str, extends: Sequence[str], proposals: Sequence[SignatureProposal]
) -> str:
    """Return the text of a layer with these signatures; a person decides the blame."""
    lines = [render_layer(name, extends, {}).rstrip(), "", "signatures:"]
    for proposal in proposals:
        errors, runs = count(proposal.hits, "error"), count(proposal.sessions, "session")
        tool = for_terminal(replace_surrogates(proposal.tool), 60)
        lines += [
            f"  # {errors} in {runs}, most of them of `{tool}`",
            f"  - id: {flow_yaml(proposal.id)}",
            f"    pattern: {flow_yaml(proposal.pattern)}",
            "    blame: unknown  # or agent, or harness",
            f"    examples: {flow_yaml({'match': proposal.examples})}",
        ]
    return "\n".join(lines) + "\n"


def compile_layer(text: str) -> CompiledPolicy | None:
    """Compile a layer for a replay; None if it does not fit what it extends."""
    root = parse(text, FILE_NAME).root
    compiled = check_tree(root)[0] if root is not None else None
    return compiled and use_replay_key(compiled)


def relative_extends(policies: Sequence[str], folder: Path) -> list[str]:
    """Return the `extends` of a file in `folder`, for policies named from the current folder."""
    extends = []
    for name in policies:
        layers = load_layers([name]).layers
        if layers and layers[-1].source.file.startswith("pack:"):
            extends.append(name)
            continue
        path = name if Path(name).is_absolute() else Path(os.path.relpath(name, folder)).as_posix()
        extends.append(path if "/" in path else f"./{path}")
    return extends


def replace_surrogates(text: str) -> str:
    """Return the text without lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


def _lines(key: str, value: dict[str, Any] | list[str] | str, indent: str) -> Iterator[str]:
    if isinstance(value, str):
        yield f"{indent}{flow_yaml(key)}: {value}"
        return
    yield f"{indent}{flow_yaml(key)}:"
    if isinstance(value, list):
        yield from (f"{indent}  - {item}" for item in value)
        return
    for name, child in value.items():
        yield from _lines(name, child, f"{indent}  ")

"""A layer over a policy: YAML that extends it, and the policy that comes of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from policyguard.compiler import CompiledPolicy, check_tree
from policyguard.compiler.load.loader import load_layers
from policyguard.engines.yaml_source import parse
from policyguard.report.escape import for_terminal
from policyguard.report.policy.annotated import flow_yaml
from policyguard.report.replay.phrases import count
from policyguard.report.suggest.figures import SignatureProposal

FILE_NAME = "suggested.yaml"
"""What the layer is called in reports, and the folder that it is seen from: this one."""
_KEY = b"policyguard simulate"

Entries = Iterable[tuple[tuple[str | int, ...], dict[str, Any] | None]]
"""Paths, and what stands there; None: nothing does."""


def render_layer(name: str, extends: Sequence[str], entries: Entries) -> str:
    """The text of a layer in which these entries are set."""
    lines = [
        "policyguard: 1",
        f"name: {flow_yaml(replace_surrogates(name))}",
        f"extends: {flow_yaml(list(extends))}",
    ]
    tree: dict[str, Any] = {}
    for path, entry in entries:
        if entry is None:
            continue
        inner = tree
        *above, last = map(str, path)
        for step in above:
            inner = inner.setdefault(step, {})
        inner[last] = _InlineEntry(entry)
    for section, below in tree.items():
        lines += ["", *_lines(section, below, "")]
    return "\n".join(lines) + "\n"


def render_signatures_layer(
    name: str, extends: Sequence[str], proposals: Sequence[SignatureProposal]
) -> str:
    """The text of a layer with these signatures. Whose fault they are is for a person to say."""
    lines = [render_layer(name, extends, ()).rstrip(), "", "signatures:"]
    for one in proposals:
        errors, runs = count(one.hits, "error"), count(one.sessions, "session")
        lines += [
            f"  # {errors} in {runs}, most of them of `{for_terminal(replace_surrogates(one.tool), 60)}`",
            f"  - id: {flow_yaml(one.id)}",
            f"    pattern: {flow_yaml(one.pattern)}",
            "    blame: unknown  # or agent, or harness",
            f"    examples: {flow_yaml({'match': one.examples})}",
        ]
    return "\n".join(lines) + "\n"


def compile_layer(text: str) -> CompiledPolicy | None:
    """The policy that a layer makes; None where it cannot be laid over what it extends."""
    root = parse(text, FILE_NAME).root
    made = check_tree(root)[0] if root is not None else None
    if made is not None:
        made.fingerprinter.rekey(_KEY)
    return made


def relative_extends(policies: Sequence[str], folder: Path) -> list[str]:
    """What a file in `folder` has to write to extend these policies, named from here."""
    written = []
    for name in policies:
        layers = load_layers([name]).layers
        if layers and layers[-1].source.file.startswith("pack:"):
            written.append(name)
            continue
        path = name if Path(name).is_absolute() else Path(os.path.relpath(name, folder)).as_posix()
        written.append(path if "/" in path else f"./{path}")
    return written


def replace_surrogates(text: str) -> str:
    """The text without halves of surrogate pairs, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


class _InlineEntry:
    """What is written in one line."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value


def _lines(key: str, below: Any, indent: str) -> Iterator[str]:
    if isinstance(below, _InlineEntry):
        yield f"{indent}{flow_yaml(key)}: {flow_yaml(below.value)}"
        return
    yield f"{indent}{flow_yaml(key)}:"
    for inner, value in below.items():
        yield from _lines(inner, value, f"{indent}  ")

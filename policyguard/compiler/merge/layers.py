"""Merge the layers of a policy into one tree whose values keep their source."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping as Environ
from dataclasses import dataclass
from typing import NamedTuple

from policyguard.compiler.inputs import InputFile
from policyguard.compiler.load.layer_validation import find_span, validate_layer
from policyguard.compiler.load.loader import Layer, LoadedLayers
from policyguard.compiler.merge.disable import collect_names, find_duplicate_ids, remove_disabled
from policyguard.compiler.merge.lock_check import check_locks
from policyguard.compiler.merge.locks import (
    KeyPath,
    Locks,
    add_locks,
    pinned_lists,
    without_env,
)
from policyguard.compiler.merge.merger import merge_layer
from policyguard.engines.source import SourceText
from policyguard.engines.yaml_tree import MappingNode, Node, Path, ScalarNode, descend
from policyguard.model.diagnostic import Diagnostic, Severity, Span


class LayerStep(NamedTuple):
    """One layer alone, and what it was merged into, without what it disables.

    `pinned`: see `merge_layer`.
    """

    layer: MappingNode
    inherited: MappingNode
    pinned: frozenset[KeyPath] = frozenset()


@dataclass(frozen=True)
class MergedPolicy:
    """All layers in one tree, and the source of each value.

    A path leads through the merged policy, such as `("rules", "no-push", "when")` or
    `("signatures", 0, "pattern")`. A missing path, where a default applies, means the nearest
    value around it.

    `broken_entries` are entries, as `("rules", "no-push")`, with invalid parts removed: do not
    check them as a whole, but their names exist. `is_complete` is whether every layer could be
    read; if not, more names may exist.

    `locks` are the values that are locked, by their paths.

    `steps` are the layers in order, the last one on top; `files` are all files read.
    """

    sources: dict[str, SourceText]
    tree: MappingNode
    broken_entries: frozenset[tuple[str, str]]
    is_complete: bool
    steps: tuple[LayerStep, ...]
    files: tuple[InputFile, ...]
    locks: Locks

    @property
    def top_layer(self) -> MappingNode:
        """The last layer alone."""
        return self.steps[-1].layer

    @property
    def inherited(self) -> MappingNode:
        """What the last layer was merged into, without what it disables."""
        return self.steps[-1].inherited

    def broken_names(self, section: str) -> set[str]:
        """Return the names of a section's broken entries."""
        return {name for part, name in self.broken_entries if part == section}

    def node(self, path: Path) -> Node:
        """Return the value at `path`, or the nearest around it."""
        return descend(self.tree, path)[0]

    def has(self, path: Path) -> bool:
        """Return whether the policy has a value at `path` itself."""
        return not descend(self.tree, path)[1]

    def span_of(self, path: Path, *, key: bool = False) -> Span:
        """Return the span of the value at `path` (first line of a list or map), or of its key."""
        return find_span(self.tree, path, key=key)

    def span_within(
        self, path: Path, line: int, column: int, end_line: int, end_column: int
    ) -> Span:
        """Return the span of a part of the text at `path`.

        Lines and columns count from 1 in the text; the end is exclusive.
        """
        node = self.node(path)
        if isinstance(node, ScalarNode):
            return node.line_span(line, column, end_line, end_column)
        return self.span_of(path)

    def origin(self, path: Path) -> str:
        """Return the file of the value at `path`, as reports show it."""
        return self.node(path).source.file

    def lines(self, span: Span) -> tuple[str, ...]:
        """Return the source lines of `span`."""
        return self.diagnostic("", "", span).lines

    def diagnostic(
        self,
        code: str,
        message: str,
        at: Span | Path,
        *,
        key: bool = False,
        hint: str | None = None,
        severity: Severity = "error",
    ) -> Diagnostic:
        """Return a diagnostic at a span, or at the value or key of a path."""
        span = at if isinstance(at, Span) else self.span_of(at, key=key)
        source = self.sources[span.file]
        return source.diagnostic(code, message, span, hint=hint, severity=severity)


def merge_layers(loaded: LoadedLayers) -> tuple[MergedPolicy, list[Diagnostic]]:
    """Validate each layer and merge them in order.

    The tree is empty if no layer has a usable part.
    """
    diagnostics: list[Diagnostic] = []
    tree = MappingNode(SourceText("", ""), 0, 0, ())
    steps: list[LayerStep] = []
    broken: set[tuple[str, str]] = set()
    complete = loaded.is_complete
    locks: Locks = {}
    for layer in loaded.layers:
        checked = validate_layer(layer.root, loaded.diagnostics)
        diagnostics += checked.diagnostics
        if checked.tree is None:
            complete = False
            continue
        base, found = remove_disabled(tree, checked.tree, broken)
        diagnostics += check_locks(checked.tree, tree, locks)
        pinned = pinned_lists(locks)
        steps.append(LayerStep(checked.tree, base, pinned))
        broken |= {
            (str(path[0]), path[1])
            for path in checked.removed
            if len(path) > 1 and isinstance(path[1], str)
        }
        broken |= collect_names(layer.root) - collect_names(checked.tree)
        diagnostics += find_duplicate_ids(checked.tree)
        tree, changed = merge_layer(base, checked.tree, pinned)
        diagnostics += [*found, *changed] if complete else changed
        locks = add_locks(locks, checked.tree, tree)
        tree = without_env(tree, locks)
    sources = {layer.source.file: layer.source for layer in loaded.layers}
    files = tuple(loaded.files)
    done = tuple(steps or [LayerStep(tree, tree)])
    merged = MergedPolicy(sources, tree, frozenset(broken), complete, done, files, locks)
    return merged, diagnostics


def compute_digest(layers: list[Layer], environ: Environ[str, str], lock: str = "") -> str:
    """Return the hex SHA-256 of the layers' text and the environment variables read.

    `lock` is that of the pinned tools, which decisions depend on, too.
    """
    sha = hashlib.sha256()
    texts = [layer.source.text for layer in layers]
    texts += (f"{name}={value}" for name, value in sorted(environ.items()))
    for text in [*texts, lock] if lock else texts:
        data = text.encode()
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()
